"""`kvscope doctor`: one screen of what works here, what does not, and why."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvscope.answer_document import AnswerError, Connection
from kvscope.doctor import Finding, Status
from kvscope.options.generated import with_options
from kvscope.options.gpu_devices import DeviceOptions
from kvscope.options.listen import Address
from kvscope.output import Output, OutputOption, fail
from kvscope.places import server_named
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.doctor.depth import Depths
    from kvscope.doctor.gpus import GpuReport

DEFAULT_TARGET = "http://127.0.0.1:8000"
EXIT_PROBLEMS = 1
_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "note": ("note", "yellow"),
    "problem": ("problem", "bold red"),
}
_STATES = {"yes": "green", "no": "yellow", "unknown": "yellow", "-": ""}


@with_options
def doctor(
    server: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVER",
            help="Server to report on, a URL, HOST:PORT or HOST: what it is, at which depths it "
            "can be watched, what stays unknown, and the change that would add the most. Default: "
            f"{DEFAULT_TARGET}; no error if nothing answers there.",
            show_default=False,
        ),
    ] = None,
    connection: Connection = Connection(seconds=5.0),
    devices: DeviceOptions = DeviceOptions(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Report what can be read here and from a server, and why.

    Exit status: 1 if there is a problem.

    Example: kvscope doctor http://127.0.0.1:8000
    """
    from kvscope.doctor.gpus import gpu_findings, gpu_reports
    from kvscope.doctor.host import host_findings
    from kvscope.doctor.target import target_report
    from kvscope_exporter.machine.gpu import GpuPoller

    asked_for = server is not None
    url = server_named(server or DEFAULT_TARGET, Address().port)
    poller = GpuPoller(environment=devices.gpu_devices.environment())
    poller.start()
    try:
        report = target_report(url, asked_for=asked_for, connection=connection)
    except AnswerError as error:
        poller.stop()
        raise fail(error) from None
    here = [*gpu_findings(poller, connection.seconds), *host_findings()]
    findings = [*report.findings, *here] if asked_for else [*here, *report.findings]
    sample = poller.read().sample
    reports = [] if sample is None else list(gpu_reports(sample, poller.refused))
    poller.stop()
    problems = sum(finding.status == "problem" for finding in findings)
    if output.is_json:
        found = {"findings": findings, "gpus": reports, "server": report.server.facts}
        typer.echo(msgspec.json.encode({**found, "depths": report.depths}))
        raise typer.Exit(EXIT_PROBLEMS if problems else 0)
    console = Console()
    console.print(_findings_table(findings))
    if reports:
        console.print(_gpu_table(reports))
    if report.depths is not None:
        _print_depths(console, report.depths)
    if problems:
        console.print("1 problem" if problems == 1 else f"{problems} problems", style="bold red")
        raise typer.Exit(EXIT_PROBLEMS)
    console.print("no problems", style="green")


def _findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        mark, style = _MARKS[finding.status]
        table.add_row(Text(mark, style), Text(finding.subject), Text(printable(finding.text)))
    return table


def _gpu_table(reports: Sequence["GpuReport"]) -> Table:
    table = Table("GPU", "name", "memory", "processes", "readable", "not readable", title="GPUs")
    for report in reports:
        table.add_row(
            Text(str(report.index)),
            Text(report.name),
            Text(report.memory if report.up else "lost"),
            Text(report.processes),
            Text(", ".join(report.readable) or "-"),
            Text(", ".join(report.refused) or "-"),
        )
    return table


def _print_depths(console: Console, found: "Depths") -> None:
    """Depths at which the server can be watched, what they miss, and what would add to it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, step in (
        ("observer", found.observer),
        ("KV events", found.events),
        ("page", found.page),
    ):
        table.add_row(Text(name), Text(step.state, _STATES[step.state]), Text(printable(step.text)))
    console.print(Text("\nDepths at which it can be watched now", "bold"))
    console.print(Padding(table, (0, 0, 0, 2)))
    if found.attach:
        is_entry = found.attach.startswith("-")
        where = ", by this entry in the file of kvscope sidecar --config" if is_entry else ""
        console.print(Text(f"\nHow to watch it now{where}", "bold"))
        _print_line(console, found.attach)
    if found.lost:
        console.print(Text("\nNot known then", "bold"))
        for text in found.lost:
            console.print(Text(f"  - {text}"))
    if found.change:
        console.print(Text("\nThe change that would add most", "bold"))
        console.print(Padding(Text(found.change), (0, 0, 0, 2)))
        _print_line(console, found.command)
    console.print()


def _print_line(console: Console, line: str) -> None:
    """Print without line breaks of ours, so that it can be copied."""
    console.print(Text(f"  {printable(line)}"), soft_wrap=True)
