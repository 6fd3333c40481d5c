"""The report as tables for a terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kvscope.load.counters import HitRate
from kvscope.load.distribution import Summary
from kvscope.load.report import Report
from kvscope_events.printable import quoted

_MILLISECONDS = 1000
_NOT_EXPOSED = "not exposed"
_TOGETHER = (
    "note: chunks often arrived several at a time, so the ITL percentiles describe this client's "
    "reading; TPOT is the server's pace"
)
_LEGEND = "TTFT: to first token, TPOT: per output token, ITL: between chunks, E2EL: end to end"


def report_table(report: Report) -> Group:
    """Counts and rates, then latencies, then failures."""
    facts = Table(title=Text(f"{report.scenario} on {quoted(report.model)}"), show_header=False)
    facts.add_column("what")
    facts.add_column("value", justify="right")
    for what, value in _facts(report):
        facts.add_row(what, value)
    parts: list[Table | Text] = [facts, _latencies(report), Text(_LEGEND)]
    for kind, detail in report.first_failures.items():
        parts.append(Text(f"first {kind}: {quoted(detail)}"))
    if report.chunks_arrived_together:
        parts.append(Text(_TOGETHER))
    parts += [Text(f"note: {quoted(note)}") for note in report.notes]
    return Group(*parts)


def _facts(report: Report) -> list[tuple[str, str]]:
    failed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.failed.items()))
    rows = [
        ("Duration", f"{report.elapsed_seconds:.2f} s"),
        ("Successful requests", f"{report.ok:,}"),
        ("Failed requests", f"{report.num_failed:,}" + (f" ({failed})" if failed else "")),
    ]
    only_if_any = (
        ("Retried after 429", report.retried),
        ("Cancelled in flight", report.cancelled),
        ("Shed arrivals", report.shed),
        ("Skipped, longer than the context", report.skipped),
        ("Truncated to the context", report.truncated),
    )
    rows += [(what, f"{count:,}") for what, count in only_if_any if count]
    if report.max_late_seconds is not None:
        rows.append(("Latest start behind the trace", f"{report.max_late_seconds:.2f} s"))
    return [
        *rows,
        ("Request throughput", _rate(report.per_second(report.ok), "req/s")),
        ("Prompt token throughput", _rate(report.per_second(report.prompt_tokens), "tok/s")),
        (_output_name(report), _rate(report.per_second(report.output_tokens), "tok/s")),
        ("Prefix cache hit rate, usage", _hit_rate(report.hit_rate_usage)),
        ("Prefix cache hit rate, metrics", _hit_rate(report.hit_rate_metrics)),
        ("Preemptions", _NOT_EXPOSED if report.preemptions is None else f"{report.preemptions:,}"),
    ]


def _latencies(report: Report) -> Table:
    table = Table(title="Latency, ms")
    table.add_column("")
    for name in ("count", "mean", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    rows: tuple[tuple[str, Summary | None], ...] = (
        ("TTFT", report.ttft),
        ("TPOT", report.tpot),
        ("ITL", report.itl),
        ("E2EL", report.e2e),
    )
    for what, summary in rows:
        if summary is None:
            table.add_row(what, "0", *("-",) * 5)
            continue
        seconds = (summary.mean, summary.p50, summary.p90, summary.p99, summary.max)
        table.add_row(
            what, f"{summary.count:,}", *(f"{value * _MILLISECONDS:,.2f}" for value in seconds)
        )
    return table


def _output_name(report: Report) -> str:
    return "Output token throughput" + ("" if report.output_tokens_counted else ", by chunks")


def _rate(per_second: float | None, unit: str) -> str:
    return _NOT_EXPOSED if per_second is None else f"{per_second:,.2f} {unit}"


def _hit_rate(hit_rate: HitRate | None) -> str:
    if hit_rate is None:
        return _NOT_EXPOSED
    if hit_rate.ratio is None:
        return "nothing looked up"
    return f"{hit_rate.ratio:.2%} ({hit_rate.hit_tokens:,} of {hit_rate.queried_tokens:,} tokens)"
