"""The start of a rank of SGLang, by the methods that the constructor of its scheduler calls.

Begins with the constructor, before there is anything else to observe, and has put every method back
when that returns. Nothing here raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import msgspec

from kvscope_events.events import EngineEvent, Hello
from kvscope_events.observers.endpoints import REMEDY, worker_endpoint
from kvscope_events.observers.log import warn
from kvscope_events.observers.sglang.introduction import identity_of
from kvscope_events.observers.sglang.patching import (
    Arguments,
    Before,
    Keywords,
    Patches,
    UnknownMethodError,
    found,
)
from kvscope_events.observers.worker_stream import WorkerStream
from kvscope_events.producers import SGLANG_RANK_EVENTS, in_order
from kvscope_events.vocabulary import StartPhase
from kvscope_events.wire.endpoint import EndpointError

LOADER = "sglang.srt.model_loader.loader"
RUNNER = "sglang.srt.model_executor.model_runner"
_WORKER = "init_tp_model_worker"
"""Makes the model's runner, which connects the ranks up to 0.5.20, and loads."""
PHASES: Mapping[str, StartPhase] = {
    "init_memory_pools": "pool",
    "init_all_attention_backends": "warm_up",
}
"""By the scheduler's method with which each begins; `device` begins with the constructor, and
`weights` when the first runner loads. SGLang sizes its pool without a step: no `profile`."""

_starts: list[RankStart] = []
"""That of the process's scheduler; at most one."""


def begin(
    scheduler: Any, module: Any, constructor: Callable[..., None], args: Arguments, kwargs: Keywords
) -> RankStart | None:
    """Report the start of a scheduler that is about to be made; None: it is not reported."""
    try:
        while _starts:
            _starts.pop().stop()
        given = inspect.signature(constructor).bind(scheduler, *args, **kwargs).arguments
        parallel = parallel_of(given, module)
        endpoint = worker_endpoint(engine_of(parallel), rank_of(parallel), "sglang")
        start = RankStart(endpoint)
        start.begin(scheduler, given["server_args"], parallel)
        _starts.append(start)
        return start
    except EndpointError as error:
        warn(f"its start is not reported: {error}. {REMEDY}.")
    except UnknownMethodError as error:
        warn(f"its start is not reported: {error}")
    except Exception as error:
        warn(f"its start is not reported: {error!r}")
    return None


def parallel_of(given: Mapping[str, Any], module: Any) -> Any:
    """Sizes and ranks of the process; up to 0.5.20 they are the constructor's arguments."""
    if "tp_rank" not in given:
        return module.get_parallel()
    args, tp_rank = given["server_args"], int(given["tp_rank"])
    groups = int(args.dp_size) if args.enable_dp_attention else 1
    return SimpleNamespace(
        tp_size=int(args.tp_size),
        tp_rank=tp_rank,
        pp_rank=given["pp_rank"],
        dp_rank=given["dp_rank"],
        attn_dp_size=groups,
        attn_dp_rank=tp_rank // (int(args.tp_size) // groups),
    )


def engine_of(parallel: Any) -> int:
    """The data-parallel index; with data-parallel attention the ranks of one group have a pool."""
    several = getattr(parallel, "attn_dp_size", 1) > 1
    return int((parallel.attn_dp_rank if several else parallel.dp_rank) or 0)


def rank_of(parallel: Any) -> int:
    """Among all processes that share the model's weights."""
    return int(parallel.tp_size) * int(parallel.pp_rank or 0) + int(parallel.tp_rank)


def is_remote(args: Any, parallel: Any) -> bool:
    """Whether the first rank of this one's pool, which has the scheduler that is observed, is on
    another node."""
    nodes = int(getattr(args, "nnodes", 1) or 1)
    on_each = max(1, int(parallel.tp_size) * int(getattr(args, "pp_size", 1) or 1) // nodes)
    of_pool = int(parallel.tp_size) // int(getattr(parallel, "attn_dp_size", 1) or 1)
    first = int(parallel.tp_rank) // of_pool * of_pool
    return first // on_each != rank_of(parallel) // on_each


class RankStart(WorkerStream):
    """Hooks on one scheduler while it is made; the stream stays until the process ends."""

    software = "SGLang"

    def __init__(self, endpoint: str) -> None:
        """Binds the endpoint; raises EndpointError."""
        super().__init__(endpoint, LOADER)
        self._patches = Patches(self._hook_failed)
        self._loading = Patches(self._hook_failed)

    def begin(self, scheduler: Any, args: Any, parallel: Any) -> None:
        """Publish who it is, and hook; leaves nothing behind if that fails."""
        try:
            self._patches.apply(
                found(scheduler, name, (), before)
                for name, before in {
                    _WORKER: self._runner_comes,
                    **{name: self._beginning(phase) for name, phase in PHASES.items()},
                }.items()
            )
            self._hello = _introduction(args, parallel, self.session)
            self._open()
        except BaseException:
            self.stop()
            raise

    def done(self) -> None:
        """The constructor has returned. Never raises."""
        self._guarded("at its end", self._done)

    def failed(self) -> None:
        """The constructor has raised: the process will end. Never raises."""
        self._guarded("at a start that failed", self.stop)

    def stop(self) -> None:
        self._let_go()
        super().stop()

    def _done(self) -> None:
        self._let_go()
        self._start.end()
        # True of the whole engine: its ranks wait for each other once they have loaded.
        self._hello = msgspec.structs.replace(self._hello, ready=True)
        self._report_state()

    def _beginning(self, phase: StartPhase) -> Before:
        def begins(args: Arguments, kwargs: Keywords) -> None:
            self._begin_phase(phase)

        return begins

    def _runner_comes(self, args: Arguments, kwargs: Keywords) -> None:
        """SGLang is about to import its runner's module, too."""
        runner = import_module(RUNNER).ModelRunner
        if not hasattr(runner, "load_model"):  # another release
            self._begin_phase("weights")
            return
        self._loading.apply([found(runner, "load_model", ("self",), self._loads)])

    def _loads(self, args: Arguments, kwargs: Keywords) -> None:
        """Once: a drafter, which is loaded later, belongs to the same part."""
        self._loading.restore()
        self._begin_phase("weights")

    def _state(self) -> list[EngineEvent]:
        return [self._hello, self._start.event()]

    def _each_second(self) -> list[EngineEvent]:
        return [] if self._start.has_ended else [self._start.event()]

    def _let_go(self) -> None:
        self._loading.restore()
        self._patches.restore()
        self._start.loaded()

    def _hook_failed(self, error: BaseException, where: str) -> None:
        self._fail(f"before {where}: {error!r}")


def _introduction(args: Any, parallel: Any, session: str) -> Hello:
    return msgspec.structs.replace(
        identity_of(args, session, engine_of(parallel)),
        ready=False,
        tells=in_order(SGLANG_RANK_EVENTS),
        worker=str(rank_of(parallel)),
        remote=is_remote(args, parallel),
    )
