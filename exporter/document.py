"""Writes the catalogue as a page for people, and as rows for a terminal."""

from collections.abc import Iterator
from typing import NamedTuple

from exporter.catalogue import CATALOGUE, GROUPS, Metric

_HEAD = """\
# Metrics

Every family that kvscope exports, generated from `exporter/catalogue/` by `kvscope metrics`.

`model_name` and `engine` are constant for an engine. A value that is not known is absent, never 0;
all series of a closed set of label values exist from the start. Names of other servers are the
nearest ones, not always the same definition.
"""


class Row(NamedTuple):
    """One metric in words."""

    group: str
    name: str
    kind: str
    unit: str
    labels: str
    meaning: str
    events: str
    aliases: str


def rows() -> Iterator[Row]:
    """All metrics, in the order of the page."""
    for group, title in GROUPS.items():
        for metric in _of_group(group):
            yield Row(
                group=title,
                name=metric.name,
                kind=metric.kind,
                unit=metric.unit,
                labels=", ".join(_label_texts(metric)),
                meaning=metric.help,
                events=", ".join(metric.events),
                aliases=", ".join(metric.aliases),
            )


def markdown() -> str:
    """The page docs/metrics.md."""
    parts = [_HEAD]
    for group, title in GROUPS.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("| name | type | unit | labels | meaning | from | elsewhere |\n")
        parts.append("|---|---|---|---|---|---|---|\n")
        for metric in _of_group(group):
            cells = (
                f"`{metric.name}`",
                metric.kind,
                metric.unit,
                ", ".join(f"`{text}`" for text in _label_texts(metric)),
                metric.help,
                ", ".join(metric.events),
                ", ".join(f"`{alias}`" for alias in metric.aliases),
            )
            parts.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n")
    parts.append("\n## Buckets\n\n| name | upper bounds, then +Inf |\n|---|---|\n")
    for metric in CATALOGUE:
        if metric.buckets:
            bounds = " ".join(f"{bound:g}" for bound in metric.buckets)
            parts.append(f"| `{metric.name}` | {bounds} |\n")
    return "".join(parts)


def _of_group(group: str) -> Iterator[Metric]:
    return (metric for metric in CATALOGUE if metric.group == group)


def _label_texts(metric: Metric) -> Iterator[str]:
    for label, values in metric.labels.items():
        yield label if values is None else f"{label}={'|'.join(values)}"
