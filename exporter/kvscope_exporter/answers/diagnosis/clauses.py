"""Findings from a stretch of a signal, or from something counted in it."""

from collections.abc import Callable, Iterator

from kvscope_exporter.answers.diagnosis.course import step_cost
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.shift import Shift, occurred, risen
from kvscope_exporter.catalogue.incident import Kind
from kvscope_exporter.state.timeline import Figures

STORM_PREEMPTIONS = 10
"""Fewer within an incident are the scheduler's daily work."""


def two_digits(number: float) -> str:
    """A measured figure as people say it: 0.095, 5.3, 570."""
    return f"{float(f'{number:.2g}'):,g}"


def found(scene: Scene, kind: Kind, shift: Shift, text: str, remedy: str = "") -> Finding:
    course = scene.course
    return Finding(
        kind=kind,
        began_ns=course.begin_ns(shift.begin),
        ended_ns=course.begin_ns(shift.end) if shift.is_over else None,
        text=text,
        remedy=remedy,
        evidence={"before": shift.before, "during": shift.during, "extreme": shift.extreme},
    )


def counted(
    scene: Scene,
    kind: Kind,
    count: Callable[[Figures], float],
    least: float,
    text: str,
    one: str | None = None,
) -> Iterator[Finding]:
    """Something that should not happen, with its number in the text. one: the text for 1."""
    course = scene.course
    shift = occurred([count(each.sums) for each in course.slices], least=least)
    if shift is not None:
        number = course.total(shift.begin, shift.end, count)
        yield Finding(
            kind=kind,
            began_ns=course.first_ns(shift.begin, count),
            ended_ns=course.begin_ns(shift.end) if shift.is_over else None,
            text=one if one is not None and number == 1 else text.format(number),
            evidence={"number": number},
        )


def slow_steps(scene: Scene) -> Shift | None:
    return risen(scene.course.values(step_cost), ratio=1.7, floor=0, least=2)
