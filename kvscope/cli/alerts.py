"""`kvscope alerts try`: the shipped alerts on the past, also with other objectives."""

import sys
import textwrap
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from kvscope.answer_document import Authorities, KeyFile
from kvscope.output import fail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvscope.backtest.evaluation import Rules
    from kvscope.backtest.samples import Samples

MAX_DAYS = 30.0
_WIDTH = 100


def alerts(
    action: Annotated[Literal["try"], typer.Argument(help="What to do: try.", show_choices=False)],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Recordings, *.kvsr.")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Take the past from this Prometheus instead of files."),
    ] = None,
    days: Annotated[
        float, typer.Option(min=0.01, max=MAX_DAYS, help="Days of a Prometheus.")
    ] = 1.0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Label that a Prometheus' series must have. May be repeated."
        ),
    ] = None,
    ttft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=SECONDS",
            help="Objective for the first token of a model, a bound of the histogram, or none. May "
            "be repeated.",
        ),
    ] = None,
    itl: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=SECONDS", help="The same for the time between two tokens."),
    ] = None,
    errors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=SHARE", help="Objective for the requests that end without an error."
        ),
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Where the night is, as in Europe/Berlin.")
    ] = "UTC",
    alertmanager: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="An Alertmanager's configuration, whose inhibition rules hold messages back. "
            "Default: the shipped one.",
        ),
    ] = None,
    metrics_key_file: KeyFile = None,
    ca: Authorities = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for each answer of a Prometheus.")
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Try the shipped alerts on the past, also with other objectives.

    Counts firings, those that another alert held back as long as they lasted, and of the others
    those that began at night, with the shipped objectives or others. promtool evaluates the rules
    minute by minute, so it must be on PATH. Each recording is tried by itself. Alertmanager would
    put some of what is left into one message.

    Exit status: 0, whatever fired; 2 if the past cannot be read or promtool is missing.

    Example: kvscope alerts try incident.kvsr --ttft qwen=1

    Example: kvscope alerts try --prometheus http://127.0.0.1:9090 --days 7 --timezone Europe/Berlin
    """
    import msgspec

    from kvscope.backtest import BacktestError
    from kvscope.backtest.evaluation import evaluate, promtool
    from kvscope.backtest.inhibition import SHIPPED, held_back, inhibition_rules
    from kvscope.backtest.report import lines_of, trial
    from kvscope_exporter.recorder.format import RecordingError

    if bool(files) == bool(prometheus):
        raise fail("give recordings or --prometheus URL, one of both")
    try:
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)  # UTC without a database of zones
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise fail(f"--timezone {timezone!r}: no such zone, such as Europe/Berlin") from None
    rules = _rules(ttft or [], itl or [], errors or [])
    results = []
    try:
        tool = promtool()  # before a long wait for the past
        inhibition = inhibition_rules(alertmanager or SHIPPED)
        past: Iterable[Samples]
        if prometheus:
            past = _queried(prometheus, rules, days, only or [], metrics_key_file, ca, timeout)
        else:
            past = _recorded(files or [], rules)
        for samples in past:
            _say(f"{samples.source}: promtool evaluates {len(samples.series):,} series")
            firings = evaluate(rules, samples, tool)
            _say("")
            held = held_back(firings, inhibition)
            results.append(trial(rules, samples, firings, held, zone))
    except (BacktestError, RecordingError) as error:
        _say("")
        raise fail(error) from None
    if as_json:
        typer.echo(msgspec.json.encode(results))
        return
    for number, result in enumerate(results):
        if number:
            typer.echo()
        for line in lines_of(result, zone):
            typer.echo(textwrap.fill(line, _WIDTH, subsequent_indent="  "))


def _rules(ttft: list[str], itl: list[str], errors: list[str]) -> "Rules":
    from kvscope.backtest.evaluation import Rules
    from kvscope_alerts.objectives import Objectives
    from kvscope_alerts.rules import rule_file

    try:
        return Rules(rule_file(objectives=Objectives.parse(ttft, itl, errors)))
    except ValueError as error:
        raise fail(error) from None


def _recorded(files: list[Path], rules: "Rules") -> "Iterator[Samples]":
    from kvscope.backtest.recorded import recorded

    return (recorded(file, rules.names) for file in files)


def _queried(
    url: str,
    rules: "Rules",
    days: float,
    only: list[str],
    key_file: Path | None,
    ca: Path | None,
    seconds: float,
) -> "list[Samples]":
    from kvscope.backtest.queried import queried
    from kvscope_exporter.web.access.keys import read_keys

    labels = {}
    for text in only:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise fail(f"--only {text!r}: expected NAME=VALUE, such as model_name=qwen")
        labels[name] = value
    headers = {}
    if key_file is not None:
        try:
            headers["Authorization"] = f"Bearer {read_keys(key_file)[0]}"
        except ValueError as error:
            raise fail(f"--metrics-key-file: {error}") from None
    return [
        queried(
            url,
            rules.names,
            days=days,
            only=labels,
            headers=headers,
            ca=ca,
            seconds=seconds,
            say=_say,
        )
    ]


def _say(text: str) -> None:
    """Progress, on one line of a terminal; empty: done."""
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{text[: _WIDTH - 1]}", err=True, nl=False)
