"""Everything that a report of a recording shows: its course, and the answers at one moment."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.answers.preemptions import PREEMPTIONS, Preemptions
from exporter.answers.question import Asked, Question
from exporter.answers.why.course import quantile
from exporter.answers.why.question import WHY, WhyAnswer
from exporter.flight.records import Marked, Opened
from exporter.fold import Latency, Ledger
from exporter.fold.timeline import READ, Figures, figures_of
from exporter.live.cells import all_cells
from exporter.playback.playback import Playback
from exporter.watched.reply import EngineReply
from kvscope_events.events import Hello

NUM_POINTS = 120
"""Moments of the course."""
_LEAST_NS = 10**9
_ENOUGH_BLOCKS = 20
"""Fewer blocks asked for say nothing about hits."""

Labels = tuple[str, str]
"""Model and rank of an engine."""


class Pool(NamedTuple):
    """Blocks of each state, and facts that do not change."""

    active: int
    cached: int
    free: int
    reserved: int
    block_size: int
    bytes_per_block: int


class State(NamedTuple):
    """An engine at one moment."""

    at_ns: int
    hello: Hello
    figures: Figures
    pool: Pool | None
    """None: unknown."""
    bounds: tuple[float, ...]
    """Bounds of the buckets of the time to first token."""


@dataclass(kw_only=True)
class EngineCourse:
    """One engine, from the beginning of the recording to its end."""

    model_name: str
    engine: str
    states: list[State] = field(default_factory=list)
    why: WhyAnswer | None = None
    preemptions: Preemptions | None = None
    cells: bytes | None = None
    """Blocks at the moment that is asked for, as in `exporter.live.cells`; None: not known."""
    unknown: str = ""
    """The reason why there is no answer."""


@dataclass(kw_only=True)
class Report:
    """Times are Unix times in nanoseconds."""

    opened: Opened
    begins_ns: int
    ends_ns: int
    at_ns: int
    problem: str | None
    marks: list[Marked]
    engines: list[EngineCourse]
    gpus: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes of each GPU by component; empty: not recorded."""


class Rates(NamedTuple):
    """Events between two states, by the second; None: unknown."""

    prefill_tokens: float
    decode_tokens: float
    preemptions: float
    first_token_seconds: float | None
    """95th percentile."""
    hit_ratio: float | None
    step_seconds: float | None


def gather(playback: Playback, at_ns: int) -> Generator[float, None, Report]:
    """Play the recording, and return its report; yields the share that was played."""
    file = playback.file
    begins_ns, ends_ns = file.begins_ns, file.ends_ns
    length_ns = max(1, ends_ns - begins_ns)
    number = max(1, min(NUM_POINTS, length_ns // _LEAST_NS))
    course = {begins_ns + length_ns * place // number for place in range(number + 1)}
    engines: dict[Labels, EngineCourse] = {}
    gpus: dict[str, dict[str, int]] = {}
    for moment in sorted({*course, at_ns}):
        playback.to(moment)
        if moment in course:
            for reply in playback.exporter.answer(_STATE).engines:
                if isinstance(reply.answer, State):
                    _engine(engines, reply).states.append(reply.answer)
        if moment == at_ns:
            _ask(playback, engines)
            gpus = _gpus(playback)
        yield (moment - begins_ns) / length_ns
    playback.close()
    return Report(
        opened=file.opened,
        begins_ns=begins_ns,
        ends_ns=ends_ns,
        at_ns=at_ns,
        problem=file.problem,
        marks=playback.index.marks,
        engines=list(engines.values()),
        gpus=gpus,
    )


def rates(before: State, after: State) -> Rates | None:
    """None: they are of two sessions, or not one after the other."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    old, new = before.figures, after.figures
    if seconds <= 0 or before.hello.session != after.hello.session or new.steps < old.steps:
        return None
    queried, steps = new.queried_blocks - old.queried_blocks, new.steps - old.steps
    hits = new.hit_blocks - old.hit_blocks
    counts = [late - early for early, late in zip(old.first_token, new.first_token, strict=True)]
    return Rates(
        prefill_tokens=(new.prefill_tokens - old.prefill_tokens) / seconds,
        decode_tokens=(new.decode_tokens - old.decode_tokens) / seconds,
        preemptions=(new.preemptions - old.preemptions) / seconds,
        first_token_seconds=quantile(counts, after.bounds, 0.95),
        hit_ratio=hits / queried if queried >= _ENOUGH_BLOCKS else None,
        step_seconds=(new.step_seconds - old.step_seconds) / steps if steps else None,
    )


def _engine(engines: dict[Labels, EngineCourse], reply: EngineReply) -> EngineCourse:
    labels = reply.model_name, reply.engine
    if labels not in engines:
        engines[labels] = EngineCourse(model_name=reply.model_name, engine=reply.engine)
    return engines[labels]


def _ask(playback: Playback, engines: dict[Labels, EngineCourse]) -> None:
    for reply in playback.exporter.answer(WHY).engines:
        engine = _engine(engines, reply)
        engine.why, engine.unknown = reply.answer, reply.unknown or ""
    for reply in playback.exporter.answer(PREEMPTIONS).engines:
        _engine(engines, reply).preemptions = reply.answer
    for reply in playback.exporter.answer(_CELLS).engines:
        _engine(engines, reply).cells = reply.answer


def _gpus(playback: Playback) -> dict[str, dict[str, int]]:
    gpus: dict[str, dict[str, int]] = {}
    for family in playback.exporter.registry.collect():
        if family.name == "kvscope_gpu_memory_component_bytes":
            for sample in family.samples:
                name = f"GPU {sample.labels['gpu']}"
                gpus.setdefault(name, {})[sample.labels["component"]] = int(sample.value)
    return gpus


def _state(asked: Asked) -> State:
    ledger, latency = asked.folds[Ledger], asked.folds[Latency]
    pool = None
    if ledger.known:
        pool = Pool(
            ledger.num_active,
            ledger.num_cached,
            ledger.num_free,
            ledger.reserved,
            ledger.block_size,
            ledger.bytes_per_block,
        )
    bounds = tuple(latency.first_token.bounds)
    at_ns = asked.clock.now().wall_ns
    return State(at_ns, asked.hello, figures_of(asked.folds), pool, bounds)


_STATE: Question[State] = Question(
    name="state",
    summary="",
    events=("StepCompleted",),
    folds=READ,
    read=_state,
)


def _cells(asked: Asked) -> bytes | None:
    ledger = asked.folds[Ledger]
    if not ledger.known or ledger.is_counted:
        return None
    return all_cells(ledger.blocks, ledger.reserved)


_CELLS: Question[bytes | None] = Question(
    name="cells",
    summary="",
    events=("StepCompleted",),
    folds=(Ledger,),
    read=_cells,
)
