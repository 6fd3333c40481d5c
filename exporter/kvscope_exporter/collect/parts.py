"""The parts of an engine's page and its folds: the only list of both."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.collect.device_memory import collect_out_of_memory, collect_start
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.pool import (
    collect_churn,
    collect_exhaustion,
    collect_groups,
    collect_pool,
)
from kvscope_exporter.collect.preemption import collect_preemption
from kvscope_exporter.collect.prefix import collect_prefix, collect_shadows, collect_vetoes
from kvscope_exporter.collect.requests import (
    collect_front_end,
    collect_gen_ai,
    collect_latency,
    collect_ready,
    collect_requests,
    collect_steps,
    collect_tenants,
    collect_time,
)
from kvscope_exporter.collect.residency import (
    collect_regret,
    collect_retention,
    collect_vllm_residency,
)
from kvscope_exporter.collect.sizing import collect_sizing
from kvscope_exporter.collect.tiers import collect_tiers
from kvscope_exporter.collect.vllm import (
    collect_vllm,
    collect_vllm_engine,
    collect_vllm_latency,
    collect_vllm_pool,
    collect_vllm_prefix,
    collect_vllm_requests,
)
from kvscope_exporter.collect.vllm_legacy import (
    collect_legacy_latency,
    collect_legacy_pool,
    collect_legacy_prefix,
    collect_legacy_requests,
)
from kvscope_exporter.sources.attachments import SourceKind
from kvscope_exporter.state import (
    Cache,
    Churn,
    DeviceMemory,
    EventCounts,
    Exhaustion,
    Fold,
    Folds,
    FrontEnd,
    GenAi,
    Groups,
    HelloTracker,
    Latency,
    Ledger,
    Lengths,
    LoadWindow,
    Preemption,
    Requests,
    Steps,
    Tenants,
    TimeLedger,
    Vllm,
)
from kvscope_exporter.state.fleet.projection import Projection
from kvscope_exporter.state.simulation import Shadows
from kvscope_exporter.state.tiers import Tiers

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Fold)
_T = TypeVar("_T")
Outlet = Literal["page", "otlp"]
"""Destination of families: a page for Prometheus, or an OTLP endpoint."""
PAGE: frozenset[Outlet] = frozenset({"page"})
OTLP: frozenset[Outlet] = frozenset({"otlp"})


@dataclass(frozen=True, slots=True)
class Part(Generic[F]):
    """A part that raises is left out, counted and logged once; it does not affect the others."""

    group: str
    """The group of its families in the catalogue, or a group of its own if it has no families; the
    log names it when the part fails."""
    fold: type[F]
    """The fold that it reads; when a fold fails, its parts are absent as well."""
    collect: Callable[[Families, F, Hello], Iterable[Family]] | None = None
    """None: the fold is read only by questions, or by the page as a whole."""
    outlets: frozenset[Outlet] = PAGE | OTLP

    def read(self, families: Families, folds: Folds, engine: Hello) -> Iterable[Family]:
        """Reads the families from the fold, which the caller holds meanwhile."""
        return () if self.collect is None else self.collect(families, folds[self.fold], engine)


STREAM = "stream"
"""Group of state kept about every stream, whatever it reports."""
FRONT_END = "front_end"
"""Group of the part of a front end's process, which has no other."""
START = "server"
"""Group of the part of a worker's process."""
ANSWERS = "answers"
"""Group of folds that only questions read."""

PARTS: tuple[Part[Any], ...] = (
    Part(STREAM, HelloTracker),  # first: the others may depend on the producer
    Part("requests", HelloTracker, collect_ready),
    Part("pool", Ledger, collect_pool),
    Part("pool", Ledger, collect_sizing),
    Part("pool", Churn, collect_churn),
    Part("pool", Groups, collect_groups),
    Part("pool", Cache, collect_retention),
    Part("prefix", Cache, collect_prefix),
    Part("prefix", Cache, collect_regret),
    Part("prefix", Cache, collect_vetoes),
    Part("prefix", Shadows, collect_shadows),
    Part("tiers", Tiers, collect_tiers),
    Part("requests", Requests, collect_requests),
    Part("requests", Latency, collect_latency),
    Part("requests", TimeLedger, collect_time),
    Part("requests", Tenants, collect_tenants),
    Part("requests", GenAi, collect_gen_ai, outlets=OTLP),
    Part("requests", Steps, collect_steps),
    Part("preemption", Preemption, collect_preemption),
    Part("exhaustion", Exhaustion, collect_exhaustion),
    Part("device_memory", DeviceMemory, collect_out_of_memory),
    Part("vllm", Requests, collect_vllm_requests, outlets=PAGE),
    Part("vllm", HelloTracker, collect_vllm_engine, outlets=PAGE),
    Part("vllm", Ledger, collect_vllm_pool, outlets=PAGE),
    Part("vllm", Cache, collect_vllm_prefix, outlets=PAGE),
    Part("vllm", Latency, collect_vllm_latency, outlets=PAGE),
    Part("vllm", Vllm, collect_vllm, outlets=PAGE),
    Part("vllm-residency", Cache, collect_vllm_residency, outlets=PAGE),
    Part("vllm-legacy", Ledger, collect_legacy_pool, outlets=PAGE),
    Part("vllm-legacy", Cache, collect_legacy_prefix, outlets=PAGE),
    Part("vllm-legacy", Requests, collect_legacy_requests, outlets=PAGE),
    Part("vllm-legacy", Latency, collect_legacy_latency, outlets=PAGE),
    Part(FRONT_END, FrontEnd, collect_front_end),
    Part(START, DeviceMemory, collect_start),
    Part(STREAM, DeviceMemory),
    Part(STREAM, EventCounts),
    Part(ANSWERS, LoadWindow),
    Part(ANSWERS, Lengths),
    Part(ANSWERS, Projection),
)

_OF_CONTENT = frozenset({"tiers"})
"""Groups of the parts for a stream of content, which feeds only these and STREAM."""


def parts_of(compat: Collection[str], kind: SourceKind) -> tuple[Part[Any], ...]:
    """The parts for this kind of source, with the requested compatibility sets."""
    if kind == "kv_events":
        return tuple(part for part in PARTS if part.group in {*_OF_CONTENT, STREAM})
    wanted = {part.group for part in PARTS} - COMPAT_SETS | set(compat)
    return tuple(part for part in PARTS if part.group in wanted)


TURN_SECONDS = 0.0005
"""Time that a page runs at a stretch; a single part of it may take longer."""
WAIT_SECONDS = 0.001


class ScrapeLimiter:
    """Lets an engine's steps through while a page is made in its process.

    Python gives the interpreter to another thread when the one that has it waits, or after 5 ms: a
    page that takes less than that would hold up a step for as long as it takes. Work offers turns
    at suitable points, and pauses there briefly once it has run long enough. Does nothing unless an
    engine runs in this process.
    """

    def __init__(self, *, beside_engine: bool) -> None:
        self._beside_engine = beside_engine
        self._began = 0.0

    def begin(self) -> None:
        """Begin a turn."""
        self._began = time.perf_counter()

    def offer(self) -> None:
        """Let others run if this turn has been long."""
        if self._beside_engine and time.perf_counter() - self._began > TURN_SECONDS:
            time.sleep(WAIT_SECONDS)
            self._began = time.perf_counter()


class Guard:
    """Keeps an exception in one part from failing the whole page; counts them by group."""

    def __init__(self, turns: ScrapeLimiter | None = None) -> None:
        """turns: offered before each part."""
        self._turns = turns
        self.errors: Counter[str] = Counter()

    def read(self, group: str, collect: Callable[[], Iterable[_T]]) -> list[_T]:
        """All families of a part, or its other items; empty if it raises."""
        if self._turns is not None:
            self._turns.offer()
        try:
            return list(collect())
        except Exception:
            if not self.errors[group]:  # once: it will fail at every scrape
                logger.exception("a part of the page, of group %r, failed and is left out", group)
            self.errors[group] += 1
            return []
