"""Makes the rows of an engine's tables from its events, and gives each out when it is complete."""

from collections import OrderedDict
from collections.abc import Callable

from kvscope.export.block_lives import BlockLives
from kvscope.export.course import Span
from kvscope.export.rows import PreemptionRow, Request, Row, Step, Taker
from kvscope.export.victims import Victims
from kvscope_events.events import (
    Batch,
    BlocksEvicted,
    FirstToken,
    PagesEvicted,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    StepCompleted,
)
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.preemption import Victim
from kvscope_exporter.state.tenants import name_of

MAX_OPEN = 1 << 16
"""Requests that have not ended; the oldest is given out without its end."""


class Tables:
    """One session of one engine."""

    def __init__(self, engine: str, give: Callable[[Row], None]) -> None:
        self._engine = engine
        self._give = give
        self._steps = Steps(engine, give)
        self._requests = Requests(engine, give)
        self._lives = BlockLives(engine, give)
        self._victims = Victims()

    def on_batch(self, batch: Batch, span: Span) -> None:
        self._steps.follow(batch, span)
        self._requests.follow(batch, span)
        self._lives.follow(batch, span)
        self._victims.follow(batch, span)
        self._settle()

    def on_gap(self, wall_ns: int) -> None:
        self._requests.cut()
        self._lives.cut()
        self._victims.cut()
        self._settle()

    def on_end(self, wall_ns: int) -> None:
        self._requests.cut()
        self._lives.cut()
        for victim in self._victims.waiting():
            self._give(_preempted(self._engine, victim))

    def _settle(self) -> None:
        for victim in self._victims.settled():
            self._give(_preempted(self._engine, victim))


class Steps:
    """A row for each step, with what happened in it."""

    def __init__(self, engine: str, give: Callable[[Row], None]) -> None:
        self._engine = engine
        self._give = give
        self._evicted = self._preemptions = 0

    def follow(self, batch: Batch, span: Span) -> None:
        for event in batch.events:
            match event:
                case BlocksEvicted(blocks):
                    self._evicted += len(blocks)
                case PagesEvicted(pages):
                    self._evicted += pages
                case RequestPreempted():
                    self._preemptions += 1
                case StepCompleted():
                    self._give(self._row(event, span.end_ns // 1000))
                    self._evicted = self._preemptions = 0

    def _row(self, event: StepCompleted, ended_at: int) -> Step:
        output = len(event.emitted) if event.output_tokens is None else event.output_tokens
        return Step(
            engine=self._engine,
            ended_at=ended_at,
            duration_seconds=event.duration_ns / 1e9,
            running=event.running,
            waiting=event.waiting,
            swapped=event.swapped,
            prefill_tokens=event.prefill_tokens,
            decode_tokens=event.decode_tokens,
            output_tokens=output,
            active_blocks=event.active_blocks,
            cached_blocks=event.cached_blocks,
            free_blocks=event.free_blocks,
            evicted_blocks=self._evicted,
            preemptions=self._preemptions,
        )


class Requests(Fold):
    """A row for each request, when it ends or is no longer followed."""

    name = "request_rows"

    def __init__(self, engine: str, give: Callable[[Row], None]) -> None:
        super().__init__()
        self._engine = engine
        self._give = give
        self._span = Span(0, 0)
        self._open: OrderedDict[int, Request] = OrderedDict()

    def follow(self, batch: Batch, span: Span) -> None:
        self._span = span
        self.on_batch(batch)

    def cut(self) -> None:
        """The ends of those in progress are unknown."""
        for row in self._open.values():
            self._give(row)
        self._open.clear()

    def _row(self, request: int) -> Request:
        row = self._open.get(request)
        if row is None:
            if len(self._open) >= MAX_OPEN:
                self._give(self._open.popitem(last=False)[1])
            row = self._open[request] = Request(engine=self._engine, request=request)
        return row

    def on_request_arrived(self, event: RequestArrived) -> None:
        row = self._row(event.request)
        row.arrived_at = self._span.begin_ns // 1000
        row.tenant = name_of(event) or None
        row.adapter = event.adapter or None
        row.operation = event.operation or None
        row.prompt_tokens = event.prompt_tokens
        row.max_tokens = event.max_tokens

    def on_request_scheduled(self, event: RequestScheduled) -> None:
        row = self._row(event.request)
        row.queue_seconds = event.queue_ns / 1e9
        row.cached_tokens = event.cached_tokens

    def on_first_token(self, event: FirstToken) -> None:
        self._row(event.request).first_token_seconds = event.elapsed_ns / 1e9

    def on_request_finished(self, event: RequestFinished) -> None:
        row = self._row(event.request)
        row.ended_at = self._span.end_ns // 1000
        row.prompt_tokens = event.prompt_tokens
        row.max_tokens = event.max_tokens
        row.sequences = event.sequences
        row.elapsed_seconds = event.elapsed_ns / 1e9
        if event.queue_ns is not None:
            row.queue_seconds = event.queue_ns / 1e9
        row.output_tokens = event.output_tokens
        row.preemptions = event.preemptions
        row.reason = event.reason
        self._give(self._open.pop(event.request))


def _preempted(engine: str, victim: Victim) -> PreemptionRow:
    event, resumed, shortage = victim.preempted, victim.resumed, victim.wanted_by
    taken = victim.taken_by
    return PreemptionRow(
        engine=engine,
        preempted_at=victim.wall_ns // 1000,
        sequence=event.sequence,
        request=event.request,
        mode=event.mode,
        cause=event.cause,
        blocks=event.blocks,
        discarded_tokens=event.discarded_tokens,
        age_seconds=event.age_ns / 1e9,
        wanted_by=None if shortage is None else shortage.sequence,
        wanted_blocks=None if shortage is None else shortage.wanted,
        state=victim.state,
        stalled_seconds=None if victim.stalled_ns is None else victim.stalled_ns / 1e9,
        recomputed_tokens=None if resumed is None else resumed.recompute_tokens,
        cached_tokens=None if resumed is None else resumed.cached_tokens,
        swapped_tokens=None if resumed is None else resumed.swapped_tokens,
        taken_by=None if taken is None else [Taker(*each) for each in taken.items()],
    )
