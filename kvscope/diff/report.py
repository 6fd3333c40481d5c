"""A comparison as text: settings that differ, surprises, and what is as it was."""

from collections.abc import Iterator, Sequence

from kvscope.diff.compare import Comparison, Figure
from kvscope.diff.surprise import MOST
from kvscope_events.printable import printable
from kvscope_exporter import words
from kvscope_exporter.answers.course import Fact

_TEXT_WIDTH = 36
_COLUMN = 14


def lines_of(comparison: Comparison) -> Iterator[str]:
    if comparison.settings:
        yield _row("Set differently", "A", "B")
        for setting in comparison.settings:
            yield _row(f"  {setting.name}", _fact(setting.a), _fact(setting.b))
    if comparison.surprises:
        yield from _table("Beyond its own variation", comparison.surprises)
    if not comparison.settings and not comparison.surprises:
        yield "Nothing differs beyond its own variation."
    alike = [figure for figure in comparison.alike if figure.a or figure.b]
    if alike:
        yield from _table("Within its own variation", alike)
    for label, absent in (
        ("Only in A: ", comparison.only_a),
        ("Only in B: ", comparison.only_b),
        ("In neither: ", comparison.neither),
    ):
        if absent:
            yield printable(f"{label}{'; '.join(each.text for each in absent)}.")


def _table(head: str, figures: Sequence[Figure]) -> Iterator[str]:
    yield _row(head, "A", "B", "surprise")
    for figure in figures:
        yield _row(f"  {figure.text}", *_values(figure), _surprise(figure.surprise))


def _surprise(value: float) -> str:
    """With a decimal where it could be on either side of the limit."""
    if value >= MOST:
        return f">{MOST - 1:.0f}"
    return f"{value:.1f}" if 0 < value < 10 else f"{value:.0f}"


def _row(text: str, *columns: str) -> str:
    cells = "".join(f"{column:>{_COLUMN}}" for column in columns)
    return printable(f"{text:<{_TEXT_WIDTH}}{cells}".rstrip())


def _fact(value: Fact | None) -> str:
    return "not reported" if value is None else f"{value}"


def _values(figure: Figure) -> Sequence[str]:
    return [_value(value, figure.unit) for value in (figure.a, figure.b)]


def _value(value: float, unit: str) -> str:
    if unit == "share":
        return words.share(value, 1)
    if unit == "bytes":
        return words.size(value)
    if unit == "seconds":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
