"""`/api/course`: the last half hour in slices of ten seconds, and what the engine runs with.

Raw counts rather than rates, so that a comparison of two engines can take any stretch of them.
"""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import msgspec

from kvscope_events.events import Hello
from kvscope_exporter import build_version
from kvscope_exporter.answers.diagnosis.course import SLICE_NS
from kvscope_exporter.answers.diagnosis.gpus import SLOWING
from kvscope_exporter.answers.diagnosis.scene import FOLDS, Scene, scene_of
from kvscope_exporter.answers.question import QueryContext, Question
from kvscope_exporter.machine.gpu import GpuNote
from kvscope_exporter.state import Ledger
from kvscope_exporter.state.cache import Cache
from kvscope_exporter.state.time_parts import PARTS
from kvscope_exporter.state.timeline import MISSED

Fact = str | int | float | bool
Sums = dict[str, float | list[int]]


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """One slice."""

    sums: Sums
    """Counted within it, by the names of `kvscope_exporter.state.timeline.Figures`."""
    levels: Sums
    """At its end, of those that are levels."""


class GpuCourse(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at the end of each slice."""

    name: str
    slowed: list[bool]
    """Clocks held down for heat or power."""
    other_bytes: list[int]
    """Memory of processes that are not the engine's, as far as the driver lists them."""


class CourseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ends_seconds: float
    """Unix time at the end of the last slice."""
    slice_seconds: float
    facts: dict[str, Fact]
    """Versions and settings, by the server's own names; absent: not reported."""
    reported: list[str]
    """Names of the events that the engine reports."""
    misses_known: bool
    """Whether the causes of misses are; they need the names of blocks."""
    missed: list[str]
    """The causes that `missed_blocks` counts, in its order."""
    parts: list[str]
    """The parts of time that `late_parts`, `standing` and `generating` have, in their order."""
    first_token_bounds: list[float]
    inter_token_bounds: list[float]
    slices: list[Stretch]
    """The oldest first."""
    gpus: list[GpuCourse]


class _Read(NamedTuple):
    scene: Scene
    hello: Hello
    pool: dict[str, Fact]
    misses_known: bool
    driver: dict[str, Fact]


_LEVELS = ("waiting", "running", "active", "usable", "sequences_running")
_OF_HELLO = (
    *("server", "server_version", "model_name", "max_model_len", "enable_prefix_caching"),
    *("cache_dtype", "gpu_memory_utilization", "pool_sized_by", "pool_device", "eviction_policy"),
    *("prefix_caching_hash_algo", "keeps_blocks", "requests_are"),
)


def _read(asked: QueryContext) -> _Read:
    ledger = asked.folds[Ledger]
    pool: dict[str, Fact] = {}
    if ledger.known:
        pool = {"usable_blocks": ledger.num_usable, "block_size": ledger.block_size}
        if ledger.bytes_per_block:
            pool["bytes_per_block"] = ledger.bytes_per_block
        if ledger.swap_blocks:
            pool["swap_blocks"] = ledger.swap_blocks
    return _Read(scene_of(asked), asked.hello, pool, asked.folds[Cache].known, _driver(asked))


def _driver(asked: QueryContext) -> dict[str, Fact]:
    last = None if asked.machine.gpu is None else asked.machine.gpu.read().last
    if last is None:
        return {}
    facts = {"driver_version": last.driver_version, "cuda_version": last.cuda_version}
    for device in last.devices:
        facts[f"gpu_{device.identity.index}"] = device.identity.name
    return {name: f"{value}" for name, value in facts.items() if value is not None}


def _answer(read: _Read) -> CourseAnswer:
    scene, hello = read.scene, read.hello
    course = scene.course
    facts: dict[str, Fact] = {"kvscope": build_version()}
    for name in _OF_HELLO:
        value = getattr(hello, name)
        if value is not None:
            facts[name] = value
    facts |= {f"setting.{name}": value for name, value in hello.settings.items()}
    ends = [course.begin_ns(index + 1) for index in range(len(course.slices))]
    return CourseAnswer(
        ends_seconds=(scene.now_ns + scene.wall_ahead_ns) / 1e9,
        slice_seconds=SLICE_NS / 1e9,
        facts=facts | read.pool | read.driver,
        reported=sorted(hello.tells),
        misses_known=read.misses_known,
        missed=list(MISSED),
        parts=list(PARTS),
        first_token_bounds=list(filter(isfinite, scene.first_token_bounds)),
        inter_token_bounds=list(filter(isfinite, scene.inter_token_bounds)),
        slices=[
            Stretch(
                sums={"arrived": each.sums.arrived, **_named(each.sums._asdict(), _LEVELS)},
                levels={name: getattr(each.levels, name) for name in _LEVELS},
            )
            for each in course.slices
        ],
        gpus=[
            GpuCourse(
                name=name,
                slowed=[bool(_at(notes, end).slowed & SLOWING) for end in ends],
                other_bytes=[
                    sum(
                        used
                        for pid, used in _at(notes, end).processes.items()
                        if pid not in scene.own_pids
                    )
                    for end in ends
                ],
            )
            for name, notes in scene.gpus
            if notes
        ],
    )


def _named(figures: dict[str, int | float | tuple[int, ...]], without: Sequence[str]) -> Sums:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in figures.items()
        if name not in without
    }


def _at(notes: Sequence[GpuNote], end_ns: int) -> GpuNote:
    """The last note before that moment; the first one, if it came later."""
    return next((note for note in reversed(notes) if note.time_ns <= end_ns), notes[0])


COURSE: Question[CourseAnswer] = Question(
    name="course",
    summary="The last half hour in slices of ten seconds, and what the engine runs with.",
    events=("StepCompleted",),
    folds=FOLDS,
    read=_read,
    finish=_answer,
    needs_state=False,
)
