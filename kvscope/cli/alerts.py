"""`kvscope alerts backtest`: the shipped alerts on the past, also with other objectives."""

import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from kvscope.answer_document import AnswerError, Connection
from kvscope.options.generated import with_options
from kvscope.output import Output, OutputOption, fail
from kvscope_engine.option import option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvscope.backtest.evaluation import Rules
    from kvscope.backtest.samples import Samples

MAX_DAYS = 30.0
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """A Prometheus, and what of its past is taken."""

    prometheus: str | None = option(
        None, "Take the past from this Prometheus instead of files.", "URL"
    )
    last: float = option(
        86400.0,
        "How much of a Prometheus' past is taken.",
        "DURATION",
        least=864,
        most=MAX_DAYS * 86400,
    )
    only: tuple[str, ...] = option(
        (), "Label that a Prometheus' series must have. May be repeated.", "NAME=VALUE"
    )
    connection: Connection = Connection(seconds=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Objectives and surroundings of a trial."""

    ttft: tuple[str, ...] = option(
        (),
        "Objective for the first token of a model, a bound of the histogram, or none. May be "
        "repeated.",
        "MODEL=SECONDS",
    )
    itl: tuple[str, ...] = option((), "The same for the time between two tokens.", "MODEL=SECONDS")
    errors: tuple[str, ...] = option(
        (), "Objective for the requests that end without an error.", "MODEL=SHARE"
    )
    timezone: str = option("UTC", "Where the night is, as in Europe/Berlin.", "ZONE")
    alertmanager: Path | None = option(
        None,
        "An Alertmanager's configuration, whose inhibition rules hold messages back. Default: the "
        "shipped one.",
        "FILE",
    )

    def zone(self) -> tzinfo:
        """Raises typer.Exit(2)."""
        try:  # UTC without a database of zones
            return UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise fail(
                f"--timezone {self.timezone!r}: no such zone, such as Europe/Berlin"
            ) from None


@with_options
def backtest(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Recordings, *.kvsr.")
    ] = None,
    past: PrometheusOptions = PrometheusOptions(),
    trial: TrialOptions = TrialOptions(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Try the shipped alerts on the past, also with other objectives.

    Counts how often each alert would have fired, how often it would have been inhibited, and how
    many of the rest started at night. promtool evaluates the rules minute by minute, so it must be
    on PATH. Each recording is tried by itself. Alertmanager would put some of what is left into one
    message.

    Exit status: 0, whatever fired; 2 if the past cannot be read or promtool is missing.

    Example: kvscope alerts backtest incident.kvsr --ttft qwen=1

    Example: kvscope alerts backtest --prometheus http://127.0.0.1:9090 --last 7d
    """
    import msgspec

    from kvscope.backtest import BacktestError
    from kvscope.backtest.evaluation import evaluate, promtool
    from kvscope.backtest.inhibition import SHIPPED, held_back, inhibition_rules
    from kvscope.backtest.report import lines_of
    from kvscope.backtest.report import trial as result_of
    from kvscope_exporter.recorder.format import RecordingError

    if bool(files) == bool(past.prometheus):
        raise fail("give recordings or --prometheus URL, one of both")
    zone = trial.zone()
    rules = _rules(trial)
    results = []
    try:
        tool = promtool()  # before a long wait for the past
        inhibition = inhibition_rules(trial.alertmanager or SHIPPED)
        found: Iterable[Samples]
        if past.prometheus:
            found = _queried(past.prometheus, rules, past)
        else:
            found = _recorded(files or [], rules)
        for samples in found:
            _say(f"{samples.source}: promtool evaluates {len(samples.series):,} series")
            firings = evaluate(rules, samples, tool)
            _say("")
            held = held_back(firings, inhibition)
            results.append(result_of(rules, samples, firings, held, zone))
    except (BacktestError, RecordingError) as error:
        _say("")
        raise fail(error) from None
    if output.is_json:
        typer.echo(msgspec.json.encode(results))
        return
    for number, result in enumerate(results):
        if number:
            typer.echo()
        for line in lines_of(result, zone):
            typer.echo(textwrap.fill(line, _WIDTH, subsequent_indent="  "))


def _rules(trial: TrialOptions) -> "Rules":
    from kvscope.backtest.evaluation import Rules
    from kvscope_alerts.objectives import Objectives
    from kvscope_alerts.rules import rule_file

    try:
        return Rules(rule_file(objectives=Objectives.parse(trial.ttft, trial.itl, trial.errors)))
    except ValueError as error:
        raise fail(error) from None


def _recorded(files: list[Path], rules: "Rules") -> "Iterator[Samples]":
    from kvscope.backtest.recorded import recorded

    return (recorded(file, rules.names) for file in files)


def _queried(url: str, rules: "Rules", past: PrometheusOptions) -> "list[Samples]":
    from kvscope.backtest.queried import queried

    connection = past.connection
    labels = {}
    for text in past.only:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise fail(f"--only {text!r}: expected NAME=VALUE, such as model_name=qwen")
        labels[name] = value
    try:
        headers = connection.headers
    except AnswerError as error:
        raise fail(error) from None
    return [
        queried(
            url,
            rules.names,
            days=past.last / 86400,
            only=labels,
            headers=headers,
            ca=connection.ca,
            seconds=connection.seconds,
            say=_say,
        )
    ]


def _say(text: str) -> None:
    """Progress, on one line of a terminal; empty: done."""
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{text[: _WIDTH - 1]}", err=True, nl=False)
