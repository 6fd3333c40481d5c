"""Runs a specification against a server, from its first question to the report."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

import httpx

from kvscope.load.arrivals import closed_loop, open_loop, replay
from kvscope.load.client import Client
from kvscope.load.lane import LOST_AFTER_SECONDS, Lane
from kvscope.load.report import Latency, Progress, Report, Tally
from kvscope.load.scenarios import USUAL_CONTEXT, JobSource, make_source
from kvscope.load.server import Server, discover, measure_text
from kvscope.load.spec import LoadSpec, Scenario
from kvscope.load.text import TextCost

_KEEPALIVE_SECONDS = 2.0
"""Idle connections are reused up to this age. Servers close theirs after 5 s (vLLM, uvicorn): a
client that keeps them that long sends requests into closing connections."""
_TICK_SECONDS = 0.1
"""Period of the checks for stop, deadline and progress."""

_T = TypeVar("_T")


class Stop(Protocol):
    """Ends a run; a threading.Event would do, but a signal handler must not set one."""

    def is_set(self) -> bool: ...


class StoppedError(Exception):
    """Stopped before the first request: nothing to report."""


async def run(
    spec: LoadSpec,
    *,
    stop: Stop | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Generates the load until its end, or until `stop` is set (from any thread).

    When the duration is up, requests in flight finish; on `stop` they are cancelled. `on_progress`
    is called on the event loop, ten times a second.

    Raises TraceError and OSError for the trace (all of it is read before the first request),
    ValueError for a context or block too small, ServerError if there is no usable server,
    StoppedError.
    """
    stop = stop or threading.Event()
    num_expected = _check_trace(spec)
    limits = httpx.Limits(
        max_connections=None,
        max_keepalive_connections=spec.max_in_flight,
        keepalive_expiry=_KEEPALIVE_SECONDS,
    )
    async with httpx.AsyncClient(limits=limits, timeout=spec.timeout_seconds) as http:
        server = await _unless_stopped(discover(http, spec), stop)
        notes: list[str] = []
        source = await _unless_stopped(_make_source(http, spec, server, notes), stop)
        tally = Tally()
        client = Client(http, spec, server.model)
        lane = Lane(client, tally, spec.max_in_flight)
        if source is None:
            arrivals = replay(spec, lane, tally, server.max_model_len)
        elif spec.rate is None:
            arrivals = closed_loop(spec, lane, source)
        else:
            arrivals = open_loop(spec, lane, source, tally)
        watch = _Watch(spec, tally, lane, stop, num_expected, on_progress)
        await watch.until_done(arrivals)
        tally.finished = time.perf_counter()
    if watch.server_lost:
        notes.append(f"nothing answered for {LOST_AFTER_SECONDS:.0f} s: the run was given up")
    elif watch.ended_unreachable:
        notes.append("at the end of the run the server refused every connection")
    return _report(spec, server, tally, watch, notes)


class _Watch:
    """Ends a run: when its work is done, at its deadline, on a stop, or if the server is lost."""

    def __init__(
        self,
        spec: LoadSpec,
        tally: Tally,
        lane: Lane,
        stop: Stop,
        num_expected: int | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._spec, self._tally, self._lane, self._stop = spec, tally, lane, stop
        self._num_expected = num_expected
        self._on_progress = on_progress
        self.interrupted = False
        self.server_lost = False
        self.ended_unreachable = False
        """Whether the server only refused connections after its last answer."""

    async def until_done(self, arrivals: Coroutine[None, None, None]) -> None:
        starting = asyncio.create_task(arrivals)
        try:
            while not starting.done() and not self._past_deadline() and self._may_go_on():
                await asyncio.wait({starting}, timeout=_TICK_SECONDS)
                self._tell()
            if starting.done():
                await starting  # raises what it raised
            else:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            while self._lane.in_flight and self._may_go_on():
                await asyncio.sleep(_TICK_SECONDS)
                self._tell()
            self.ended_unreachable = self._lane.unreachable
        finally:
            starting.cancel()
            await self._lane.cancel()

    def _past_deadline(self) -> bool:
        duration = self._spec.duration_seconds
        return duration is not None and self._tally.elapsed_seconds >= duration

    def _may_go_on(self) -> bool:
        self._lane.check()
        self.interrupted = self._stop.is_set()
        self.server_lost = self._lane.server_lost
        return not (self.interrupted or self.server_lost)

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        tally = self._tally
        num_failed = sum(tally.failed.values())
        shares = []
        if self._num_expected is not None:
            num_over = tally.ok + num_failed + tally.shed + tally.skipped
            shares.append(num_over / self._num_expected)
        if self._spec.duration_seconds is not None:
            shares.append(min(1.0, tally.elapsed_seconds / self._spec.duration_seconds))
        self._on_progress(
            Progress(
                elapsed_seconds=tally.elapsed_seconds,
                share_done=max(shares, default=None),
                in_flight=self._lane.in_flight,
                ok=tally.ok,
                failed=num_failed,
                output_tokens=tally.output_tokens,
            )
        )


def _check_trace(spec: LoadSpec) -> int | None:
    """Read the whole trace, so that a bad line is known before any load; returns its requests."""
    if spec.trace_file is None:
        return spec.num_requests
    trace = spec.trace()
    blocks = spec.tokens_of(trace)
    count = 0
    for request in trace:
        count += 1
        blocks.block(max(request.hash_ids))
    if not count:
        raise ValueError(f"{spec.trace_file}: no request in it")
    return count


async def _make_source(
    http: httpx.AsyncClient, spec: LoadSpec, server: Server, notes: list[str]
) -> JobSource | None:
    """None: the scenario is a trace."""
    if spec.scenario is Scenario.TRACE:
        return None
    if server.max_model_len is None:
        notes.append(f"max_model_len is not exposed: assumed {USUAL_CONTEXT}; set --max-model-len")
    cost = TextCost()
    if spec.scenario.sends_text:
        measured = await measure_text(http, spec, server.model)
        if measured is None:
            notes.append("tokens per text could not be measured: assumed one per byte")
        else:
            cost = measured
    return make_source(spec, server.max_model_len or USUAL_CONTEXT, cost)


async def _unless_stopped(work: Coroutine[None, None, _T], stop: Stop) -> _T:
    """Raises StoppedError if `stop` is set first."""
    task = asyncio.create_task(work)
    while not task.done():
        if stop.is_set():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise StoppedError
        await asyncio.wait({task}, timeout=_TICK_SECONDS)
    return task.result()


def _report(
    spec: LoadSpec,
    server: Server,
    tally: Tally,
    watch: _Watch,
    notes: list[str],
) -> Report:
    return Report(
        scenario=spec.scenario.value,
        model=server.model,
        url=spec.base_url,
        seed=spec.seed,
        elapsed_seconds=tally.elapsed_seconds,
        ok=tally.ok,
        failed=dict(tally.failed),
        first_failures=tally.first_failures,
        retried=tally.retried,
        cancelled=tally.cancelled,
        shed=tally.shed,
        skipped=tally.skipped,
        truncated=tally.truncated,
        max_late_seconds=tally.max_late_seconds,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        output_tokens_counted=tally.output_tokens_counted,
        cached_tokens=tally.cached_tokens,
        cached_of_tokens=tally.cached_of_tokens,
        first_token=Latency.of(tally.first_token_seconds),
        duration=Latency.of(tally.duration_seconds),
        server_lost=watch.server_lost or watch.ended_unreachable,
        interrupted=watch.interrupted,
        notes=tuple(notes),
    )
