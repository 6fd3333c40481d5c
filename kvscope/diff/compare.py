"""Compares two engines: settings first, since they have no variation, then figures by surprise."""

from collections.abc import Iterator, Sequence

import msgspec

from kvscope.diff.measures import Topic, Unit, is_reported, measures_of
from kvscope.diff.surprise import SURPRISING, Estimate, estimate, surprise
from kvscope_exporter.answers.course import CourseAnswer, Fact

_GPU_FLOOR_BYTES = 512 << 20
"""Less of another process is daily life, as for `why`."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that differs; null: that side does not report it."""

    name: str
    a: Fact | None
    b: Fact | None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that both sides have."""

    name: str
    text: str
    topic: Topic
    unit: Unit
    a: float
    b: float
    a_error: float
    b_error: float
    surprise: float


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a side does not report, or had no occasion to."""

    name: str
    text: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    settings: list[Setting]
    """Those that differ."""
    figures: list[Figure]
    """The most surprising first."""
    only_a: list[Absent]
    """Those that only this side has."""
    only_b: list[Absent]
    neither: list[Absent]

    @property
    def surprises(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.surprise >= SURPRISING]

    @property
    def alike(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.surprise < SURPRISING]


def compare(a: CourseAnswer, b: CourseAnswer) -> Comparison:
    """The courses may be of different lengths."""
    figures: list[Figure] = []
    absent: dict[tuple[bool, bool], list[Absent]] = {}
    for name, text, topic, unit, floor, left, right in _estimates(a, b):
        if left is None or right is None:
            kind = left is None, right is None
            absent.setdefault(kind, []).append(Absent(name=name, text=text))
            continue
        figures.append(
            Figure(
                name=name,
                text=text,
                topic=topic,
                unit=unit,
                a=left.value,
                b=right.value,
                a_error=left.error,
                b_error=right.error,
                surprise=surprise(left, right, floor),
            )
        )
    figures.sort(key=lambda figure: -figure.surprise)
    return Comparison(
        settings=[
            Setting(name=name, a=a.facts.get(name), b=b.facts.get(name))
            for name in dict.fromkeys([*a.facts, *b.facts])
            if a.facts.get(name) != b.facts.get(name)
        ],
        figures=figures,
        only_a=absent.get((False, True), []),
        only_b=absent.get((True, False), []),
        neither=absent.get((True, True), []),
    )


_Row = tuple[str, str, Topic, Unit, float, Estimate | None, Estimate | None]


def _estimates(a: CourseAnswer, b: CourseAnswer) -> Iterator[_Row]:
    of_b = {measure.name: measure for measure in measures_of(b)}
    for measure in measures_of(a):
        other = of_b.pop(measure.name, None)
        left = estimate(a.slices, measure.figure) if is_reported(measure, a) else None
        right = None
        if other is not None and is_reported(other, b):
            right = estimate(b.slices, other.figure)
        yield measure.name, measure.text, measure.topic, measure.unit, measure.floor, left, right
    for number in range(max(len(a.gpus), len(b.gpus))):
        pair = [course.gpus[number] if number < len(course.gpus) else None for course in (a, b)]
        slowed = [None if gpu is None else estimate(gpu.slowed, _mean) for gpu in pair]
        others = [None if gpu is None else estimate(gpu.other_bytes, _mean) for gpu in pair]
        which = "" if number == 0 else f" {number}"
        text = f"time with clocks of GPU{which} held down"
        yield f"gpu{number}_slowed_share", text, "gpu", "share", 0.05, slowed[0], slowed[1]
        text, floor = f"memory of others on GPU{which}", float(_GPU_FLOOR_BYTES)
        yield f"gpu{number}_other_bytes", text, "gpu", "bytes", floor, others[0], others[1]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
