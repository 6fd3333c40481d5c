"""`kvscope alerts generate` and `suggest`: the rules of an installation, and its objectives."""

import math
import time
from typing import Annotated

import typer

from kvscope.answer_document import Connection
from kvscope.options.generated import with_options
from kvscope.output import fail


def generate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTION]...",
            help="Options of the generator: kvscope alerts generate -- --help lists them.",
        ),
    ] = None,
) -> None:
    """Print the shipped rules with an installation's objectives.

    Takes --objectives FILE as kvscope alerts suggest prints it, --values for the Helm chart, and
    the options of docs/operate/alerts.md, such as --ttft, --loading, --scale-to-zero and --disable.

    Example: kvscope alerts generate --objectives objectives.yaml > kvscope.rules.yml
    """
    from kvscope_alerts.__main__ import printed

    typer.echo(printed(arguments or []), nl=False)


@with_options
def suggest(
    prometheus: Annotated[str, typer.Option(metavar="URL", help="A Prometheus.")],
    hours: Annotated[int, typer.Option(min=1, max=720, help="Hours of its past.")] = 24,
    connection: Connection = Connection(seconds=60.0),
) -> None:
    """Print first objectives of each model, from the past.

    For kvscope alerts generate. Each is the smallest limit that such a day keeps with half of its
    budget left. Without
    objectives of its own, a model's late tokens are a warning and page no one.

    Example: kvscope alerts suggest --prometheus http://127.0.0.1:9090 > objectives.yaml
    """
    from kvscope.backtest import BacktestError
    from kvscope.backtest.queried import ask, client_of
    from kvscope.cli.alerts import headers_of
    from kvscope_alerts.suggestion import suggestion

    headers, at = headers_of(connection), int(time.time())

    def now(query: str) -> dict[str, float]:
        asked: dict[str, str | int] = {"query": query, "start": at, "end": at, "step": 60}
        answer = ask(client, prometheus, asked, headers, connection.seconds)
        found = [(s.metric.get("model_name"), float(s.values[-1][1])) for s in answer.data.result]
        return {model: value for model, value in found if model and not math.isnan(value)}

    try:
        with client_of(prometheus, connection.ca, connection.seconds) as client:
            lines = suggestion(now, hours)
    except BacktestError as error:
        raise fail(error) from None
    if not lines:
        raise fail(f"{prometheus}: no requests of kvscope's servers in the last {hours} h")
    typer.echo("\n".join((f"# Kept with half of each budget in {hours} h of {prometheus}", *lines)))
