"""`kvscope doctor`: one screen of what works here, what does not, and why."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporter.cli.gpu_devices import GpuDevices, WatchedDevices
from exporter.diagnosis.finding import Finding, Status
from exporter.diagnosis.target import DEFAULT_URL, target_findings

if TYPE_CHECKING:
    from exporter.diagnosis.gpus import GpuReport

EXIT_PROBLEMS = 1
_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "note": ("note", "yellow"),
    "problem": ("problem", "bold red"),
}


def doctor(
    url: Annotated[
        str | None,
        typer.Option(
            help=f"Server whose /health and /metrics are checked. Default: {DEFAULT_URL}; nothing "
            "there is no problem."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for the driver's first answer.")
    ] = 5.0,
    gpu_devices: WatchedDevices = GpuDevices.VISIBLE,
) -> None:
    """Report what can be read on this machine, what cannot, and why.

    Exit status: 1 if there is a problem.

    Example: kvscope doctor --url http://127.0.0.1:8000
    """
    from exporter.diagnosis.gpus import gpu_findings, gpu_reports
    from exporter.diagnosis.host import host_findings
    from exporter.gpu import GpuPoller

    poller = GpuPoller(environment=gpu_devices.environment())
    poller.start()
    findings = [
        *gpu_findings(poller, timeout),
        *host_findings(),
        *target_findings(url or DEFAULT_URL, asked_for=url is not None),
    ]
    sample = poller.read().sample
    reports = [] if sample is None else list(gpu_reports(sample, poller.refused))
    poller.stop()
    console = Console()
    console.print(_findings_table(findings))
    if reports:
        console.print(_gpu_table(reports))
    problems = sum(finding.status == "problem" for finding in findings)
    if problems:
        console.print(f"{problems} problem(s)", style="bold red")
        raise typer.Exit(EXIT_PROBLEMS)
    console.print("no problems", style="green")


def _findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        mark, style = _MARKS[finding.status]
        table.add_row(Text(mark, style), Text(finding.subject), Text(finding.text))
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
