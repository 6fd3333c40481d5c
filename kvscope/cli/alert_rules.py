"""`kvscope alerts generate` and `suggest`: the rules of an installation, and its objectives."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kvscope.answer_document import Connection
from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope_engine.option import option

_KEYS = ("ttft", "itl", "errors", "loading")
_KNOWN = ", ".join((*_KEYS, "scale_to_zero"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """The settings of an installation; flags win over the file."""

    objectives: Path | None = option(
        None,
        "YAML file of models, each with some of ttft, itl, errors, loading and scale_to_zero, as "
        "kvscope alerts suggest prints it.",
        "FILE",
    )
    ttft: tuple[str, ...] = option(
        (), "Seconds to a model's first token, or none. May be repeated.", "MODEL=SECONDS"
    )
    itl: tuple[str, ...] = option((), "The same between two tokens.", "MODEL=SECONDS")
    errors: tuple[str, ...] = option(
        (), "Share of a model's requests that end without an error.", "MODEL=SHARE"
    )
    loading: tuple[str, ...] = option((), "Time in which a model becomes ready.", "MODEL=DURATION")
    scale_to_zero: tuple[str, ...] = option(
        (), "A model that may have fewer engines, or none, at any time.", "MODEL"
    )
    page_when: str | None = option(
        None, "When trouble of a single server pages: replicas<N, or always.", "CONDITION"
    )
    disable: tuple[str, ...] = option((), "Leave out an alert. May be repeated.", "NAME")
    severity: tuple[str, ...] = option((), "Another severity for an alert.", "NAME=SEVERITY")
    wait: tuple[str, ...] = option(
        (), "Another time that an alert waits before it fires.", "NAME=DURATION"
    )
    by: str | None = option(None, "Labels that make a service.", "LABELS")
    grafana: str | None = option(None, "Address that links to boards lead to.", "URL")
    runbooks: str | None = option(None, "Address that links to runbooks lead to.", "URL")

    def arguments(self) -> list[str]:
        """For the generator of the rules, which checks them. Raises ValueError for the file."""
        found = {} if self.objectives is None else _read(self.objectives)
        given = [f"--{k}={m}={own[k]}" for m, own in found.items() for k in _KEYS if k in own]
        given += [f"--scale-to-zero={m}" for m, own in found.items() if own.get("scale_to_zero")]
        for name in self.__dataclass_fields__:
            value, flag = getattr(self, name), "for" if name == "wait" else name.replace("_", "-")
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            given += [f"--{flag}={each}" for each in values if name != "objectives"]
        return given


@with_options
def generate(
    rules: RuleOptions = RuleOptions(),
    values: Annotated[
        bool, typer.Option("--values", help="Print them as values for the Helm chart.")
    ] = False,
) -> None:
    """Print the shipped rules with an installation's objectives.

    Example: kvscope alerts generate --objectives objectives.yaml > kvscope.rules.yml
    """
    import argparse

    from kvscope_alerts.options import add_options, chosen
    from kvscope_alerts.rules import HEADER, mapping
    from kvscope_alerts.yaml_text import to_yaml

    parser = argparse.ArgumentParser(prog="kvscope alerts generate", usage=argparse.SUPPRESS)
    add_options(parser)
    if values:
        parser.set_defaults(grafana="")  # the chart's grafanaUrl goes before
    try:
        places, objectives, edits = chosen(parser, parser.parse_args(rules.arguments()))
    except ValueError as error:
        raise fail(error) from None
    found: dict[str, Any] = mapping(None, places, objectives, edits)
    typer.echo(to_yaml({"rules": found} if values else found, HEADER), nl=False)


@with_options
def suggest(
    prometheus: Annotated[str, typer.Option(metavar="URL", help="A Prometheus.")],
    hours: Annotated[int, typer.Option(min=1, max=720, help="Hours of its past.")] = 24,
    connection: Connection = Connection(seconds=60.0),
) -> None:
    """Print first objectives of each model from the past, for kvscope alerts generate.

    Each is the smallest limit that an ordinary day keeps with half of its budget left. Without
    objectives of its own, a model's late tokens are a warning and page no one.

    Example: kvscope alerts suggest --prometheus http://127.0.0.1:9090 > objectives.yaml
    """
    from kvscope.backtest import BacktestError
    from kvscope.backtest.suggestion import suggestion
    from kvscope.cli.alerts import headers_of

    try:
        for line in suggestion(prometheus, hours, headers_of(connection), connection):
            typer.echo(line)
    except BacktestError as error:
        raise fail(error) from None


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Settings by model. Raises ValueError."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--objectives {path}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError(f"--objectives {path}: expected models, each with some of {_KNOWN}")
    for model, own in found.items():
        if not isinstance(own or {}, dict) or (own or {}).keys() - {*_KEYS, "scale_to_zero"}:
            raise ValueError(f"--objectives {path}: {model}: expected some of {_KNOWN}")
    return {str(model): own or {} for model, own in found.items()}
