"""Everything that the search for a cause may look at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Course
from kvscope_exporter.answers.gather import gather
from kvscope_exporter.answers.question import QueryContext, UnknownError
from kvscope_exporter.machine.gpu import GpuNote
from kvscope_exporter.state import HelloTracker, Latency, Ledger, Requests, Steps, TimeLedger
from kvscope_exporter.state.time_parts import PARTS
from kvscope_exporter.state.timeline import READ, Timeline, figures_of

FOLDS = tuple(dict.fromkeys((*READ, HelloTracker, *ADVICE.folds)))


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Copied while the folds were held."""

    timeline: Timeline
    now_ns: int
    wall_ahead_ns: int
    """Wall clock less our monotonic clock."""
    silent_since_ns: int | None
    observer_stopped: str | None
    imbalance: int
    last_step_ns: int | None
    has_work: bool
    first_token_bounds: Sequence[float]
    inter_token_bounds: Sequence[float]
    gpus: Sequence[tuple[str, Sequence[GpuNote]]]
    """Name and history of each GPU that the engine uses."""
    own_pids: frozenset[int]
    server: str
    settings: Mapping[str, float]
    held: Mapping[str, Sequence[int]]
    """See `TimeLedger.held`."""
    facts: Facts | None
    """For the adviser; None: not known, or the server's options are not."""
    unseen: list[str]

    @cached_property
    def course(self) -> Course:
        """Made when it is asked for, since it takes tens of milliseconds."""
        return Course(self.timeline, self.now_ns)

    @cached_property
    def aligned(self) -> Course:
        """The same in slices that are the same whenever one asks: the last one has ended."""
        return Course(self.timeline, self.now_ns - self.now_ns % SLICE_NS)

    @cached_property
    def proposals(self) -> Sequence[Proposal]:
        """The adviser's, the best first."""
        return () if self.facts is None else advise(self.facts).proposals


def scene_of(asked: QueryContext) -> Scene:
    """The folds are held meanwhile."""
    folds, now = asked.folds, asked.clock.now()
    present = None if asked.silent_since_ns is not None else figures_of(folds)
    requests, ledger, latency = folds[Requests], folds[Ledger], folds[Latency]
    return Scene(
        timeline=asked.timeline.until(now.monotonic_ns, present),
        now_ns=now.monotonic_ns,
        wall_ahead_ns=now.wall_ns - now.monotonic_ns,
        silent_since_ns=asked.silent_since_ns,
        observer_stopped=folds[HelloTracker].stopped,
        imbalance=ledger.imbalance if ledger.known else 0,
        last_step_ns=folds[Steps].last_step_ns,
        has_work=requests.known and requests.running + requests.waiting > 0,
        first_token_bounds=latency.first_token.bounds,
        inter_token_bounds=latency.inter_token.bounds,
        gpus=_gpus(asked),
        own_pids=frozenset(process.hello.pid for process in asked.processes),
        server=asked.hello.server,
        settings=asked.hello.settings,
        held=folds[TimeLedger].held,
        facts=_facts(asked),
        unseen=list(_unseen(folds[TimeLedger])),
    )


def _facts(asked: QueryContext) -> Facts | None:
    try:
        return gather(asked)
    except UnknownError:
        return None


def _unseen(time: TimeLedger) -> Iterator[str]:
    unknown = time.standing[PARTS.index("unknown")]
    if unknown > sum(time.standing) / 10:
        yield "This server does not report what requests wait for."


def _gpus(asked: QueryContext) -> list[tuple[str, Sequence[GpuNote]]]:
    """Those that the engine's processes report; all, if none is reported."""
    history = asked.machine.gpu_history
    labels = asked.hello.model_name, asked.hello.engine
    own = [p for p in asked.processes if (p.hello.model_name, p.hello.engine) == labels]
    used = {uuid for process in own for uuid in process.samples if uuid is not None}
    reading = None if asked.machine.gpu is None else asked.machine.gpu.read().last
    names = {}
    if reading is not None:
        names = {d.identity.uuid: f"GPU {d.identity.index}" for d in reading.devices}
    return [
        (names.get(uuid, uuid), history.of(uuid))
        for uuid in history.uuids()
        if not used or uuid in used
    ]
