"""docs/reference/metrics.md: the catalogue as a page."""

from collections.abc import Iterator

from kvscope_exporter.catalogue import CATALOGUE, GROUPS, Metric

_HEAD = """\
# Metrics

Every family that kvscope exports, generated from `exporter/kvscope_exporter/catalogue/` by `kvscope
docs metrics`.

`model_name` and `engine` are constant for an engine. A value that is not known is absent, never 0;
where a label has a closed set of values, all of its series exist from the start. The names of
other servers are the nearest ones; their definitions can differ. "From" names the events that a
server must report for a family to be there; [servers.md](servers.md) lists which servers do. "OTLP"
has name and unit where metrics are sent by OTLP ([opentelemetry.md](../operate/opentelemetry.md)).

"Detail" says what a lean page, the default of `--detail`, has of a family: all of it (lean),
nothing (full only), or the part that is named. `/metrics?detail=full` always has everything.
"""


def metrics_page() -> str:
    """The page in Markdown."""
    parts = [_HEAD]
    for group, title in GROUPS.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("| name | type, unit | labels | detail | meaning |\n|---|---|---|---|---|\n")
        for metric in CATALOGUE:
            if metric.group != group:
                continue
            cells = (
                f"`{metric.name}`",
                f"{metric.kind}, {metric.unit}" if metric.unit else metric.kind,
                "<br>".join(f"`{text}`" for text in _label_texts(metric)),
                _detail_text(metric),
                "<br>".join((f"{metric.help} {metric.notes}".rstrip(), *_more(metric))),
            )
            parts.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n")
    parts.append("\n## Buckets\n\n| name | upper bounds, then +Inf |\n|---|---|\n")
    for metric in CATALOGUE:
        if metric.buckets:
            bounds = " ".join(f"{bound:g}" for bound in metric.buckets)
            parts.append(f"| `{metric.name}` | {bounds} |\n")
    return "".join(parts)


def _more(metric: Metric) -> Iterator[str]:
    """Small lines below the meaning."""
    if metric.events:
        yield f"*From:* {', '.join(metric.events)}"
        if metric.counted:
            yield f"*Counted pools:* {', '.join(metric.counted)}"
    elif metric.group == "page":
        yield "*From:* the server's page"
    if text := _otel_text(metric):
        yield f"*OTLP:* {text}"
    if metric.aliases:
        yield f"*Elsewhere:* {', '.join(f'`{alias}`' for alias in metric.aliases)}"


def _otel_text(metric: Metric) -> str:
    """Name and unit in OpenTelemetry; a missing unit is left out."""
    name, unit = metric.otel_name, metric.otel_unit
    if not name:
        return ""
    return f"`{name}`, `{unit}`" if unit else f"`{name}`"


def _detail_text(metric: Metric) -> str:
    parts = [f"{name}={'|'.join(values or ())}" for name, values in metric.lean_values.items()]
    parts = [f"lean: `{part}`" for part in parts]
    if metric.lean_buckets is not None:
        bounds = " ".join(f"{bound:g}" for bound in metric.lean_buckets)
        parts.append(f"lean: buckets {bounds}" if bounds else "lean: sum and count")
    if metric.lean_without:
        parts.append(f"lean: without `{'`, `'.join(metric.lean_without)}`")
    return "full only" if metric.detail == "full" else "<br>".join(parts) or "lean"


def _label_texts(metric: Metric) -> Iterator[str]:
    for label, values in metric.labels.items():
        yield label if values is None else f"{label}={'|'.join(values)}"
