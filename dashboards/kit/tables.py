"""Panels to read line by line: tables of the present state, and notes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grafana_foundation_sdk.builders import common as cb
from grafana_foundation_sdk.builders import table, text
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.kit.links import SOURCE, Link
from dashboards.kit.panels import LETTERS, RATIO, Panel, Q, targets
from dashboards.kit.thresholds import Steps


class Column(NamedTuple):
    """A column of a table: shows a label, or the value of a query."""

    title: str
    unit: str = ""
    steps: Steps | None = None
    link: Link | None = None
    width: int | None = None
    least: int | None = None
    """Minimum width in pixels, if the width is what is left; Grafana's default is 150."""
    meanings: Mapping[int, tuple[str, str]] | None = None
    """The text and background of each value."""
    words: Mapping[str, str] | None = None
    """The text of a label's values that are no words."""
    decimals: int | None = None


def rows(
    id: int,
    title: str,
    description: str,
    *queries: Q,
    columns: Mapping[str, Column],
    span: int = 24,
    height: int = 8,
    when_absent: str = "",
    worst_first: tuple[str, ...] = (),
    least_first: tuple[str, ...] = (),
) -> Panel:
    """A table of the present state: one query per value column, joined by labels.

    columns: by label or by the legend of a query, in the order shown. Other labels are hidden.
    worst_first: titles of the columns by which the table is sorted, largest value first.
    least_first: the same, smallest value first.
    """
    letters = [f"Value #{letter}" for letter in LETTERS] if len(queries) > 1 else ["Value"]
    values = {letters[index]: query.legend for index, query in enumerate(queries)}
    fields = [next((v for v, shown in values.items() if shown == name), name) for name in columns]
    renamed = {f: columns[name].title for f, name in zip(fields, columns, strict=True)}
    panel = (
        table.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .no_value(when_absent)
        .span(span)
        .height(height)
        .targets(targets(queries, instant=True, shape=PromQueryFormat.TABLE))
        .with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": list(fields)}}
            )
        )
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="organize",
                options={
                    "indexByName": {f: index for index, f in enumerate(fields)},
                    "renameByName": renamed,
                },
            )
        )
    )
    order = [(title, True) for title in worst_first] + [(title, False) for title in least_first]
    if order:
        panel.sort_by(
            [cb.TableSortByFieldState().display_name(title).desc(desc) for title, desc in order]
        )
    for column in columns.values():
        panel.override_by_name(column.title, list(_column_properties(column)))
    return panel


def note(id: int, title: str, content: str, *, span: int = 24, height: int = 8) -> Panel:
    """Markdown."""
    return (
        text.Panel()
        .id(id)
        .title(title)
        .description(f"In words: {title}")
        .span(span)
        .height(height)
        .content(content)
    )


def _value(key: str, value: object) -> dm.DynamicConfigValue:
    return dm.DynamicConfigValue(key, value)


def _column_properties(column: Column) -> Iterable[dm.DynamicConfigValue]:
    yield _value("noValue", "-")  # otherwise a missing cell has the text of an empty table
    if column.unit:
        yield _value("unit", column.unit)
    decimals = 1 if column.decimals is None and column.unit == RATIO else column.decimals
    if decimals is not None:
        yield _value("decimals", decimals)
    if column.words is not None:
        texts = {value: {"text": text} for value, text in column.words.items()}
        yield _value("mappings", [{"type": "value", "options": texts}])
    if column.width is not None:
        yield _value("custom.width", column.width)
    if column.least is not None:
        yield _value("custom.minWidth", column.least)
    if column.link is not None:
        yield _value("links", [column.link.model()])
    if column.steps is not None:
        nothing = {"match": "null+nan", "result": {"text": "-", "color": "transparent"}}
        yield _value("mappings", [{"type": "special", "options": nothing}])
        steps = [{"value": value, "color": colour} for value, colour in column.steps]
        yield _value("thresholds", {"mode": "absolute", "steps": steps})
    if column.meanings is not None:
        options = {
            str(value): {"text": name, "color": colour, "index": index}
            for index, (value, (name, colour)) in enumerate(column.meanings.items())
        }
        yield _value("mappings", [{"type": "value", "options": options}])
        yield _value("custom.align", "left")  # shown as words, though they are numbers
    if column.steps is not None or column.meanings is not None:
        yield _value("custom.cellOptions", {"type": "color-background", "mode": "basic"})
