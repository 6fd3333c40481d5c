"""Options of the generators: addresses of links, service-level objectives, and their scope."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kvscope_alerts.edits import Edits
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rule import Places
from kvscope_alerts.rules import groups
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import LOADING, PAGE_BELOW
from kvscope_monitoring.addresses import GRAFANA, RUNBOOKS

_KEYS = ("ttft", "itl", "errors", "loading", "scale_to_zero")


class Options(NamedTuple):
    """Settings that differ between installations."""

    places: Places
    objectives: Objectives
    edits: Edits


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `python -m kvscope_alerts` and `python -m deploy` share."""
    parser.add_argument("--grafana", default=GRAFANA, help="address that dashboard links lead to")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address that runbook links lead to")
    parser.add_argument(
        "--objectives",
        type=Path,
        metavar="FILE",
        help=f"YAML file of models with some of {', '.join(_KEYS)}; the options below win",
    )
    for flag, unit, what in (
        ("--ttft", "SECONDS", "for the first token of one model, a bound of the histogram"),
        ("--itl", "SECONDS", "for the time between two tokens of one model, a bound as well"),
        ("--errors", "SHARE", "for the requests to one model that end without an error"),
    ):
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar=f"MODEL={unit}",
            help=f"objective {what}, or none; repeatable",
        )
    parser.add_argument(
        "--loading",
        action="append",
        default=[],
        metavar="MODEL=DURATION",
        help=f"time in which a model becomes ready (default: {LOADING}); repeatable",
    )
    parser.add_argument(
        "--scale-to-zero",
        action="append",
        default=[],
        metavar="MODEL",
        help="a model that may have fewer engines, or none, at any time; repeatable",
    )
    parser.add_argument(
        "--page-when",
        default=f"replicas<{PAGE_BELOW}",
        metavar="CONDITION",
        help="when trouble of a single server pages: replicas<N of its model are heard, or always "
        "(default: %(default)s)",
    )
    for flag, value, what in (
        ("--disable", "NAME", "leave out an alert"),
        ("--severity", "NAME=SEVERITY", "another severity for an alert, in all its rules"),
        ("--for", "NAME=DURATION", "another time that an alert waits before it fires"),
    ):
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar=value,
            dest="wait" if flag == "--for" else None,
            help=f"{what}; repeatable",
        )
    parser.add_argument(
        "--by",
        default=",".join(Scope().labels),
        metavar="LABELS",
        help="labels that make a service, to sum and to compare by (default: %(default)s)",
    )


def chosen(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Options:
    """The given options; a bad value ends the program with a message that names it."""
    try:
        file = {} if arguments.objectives is None else _read(arguments.objectives)
        of_file = {
            key: [f"{m}={own[key]}" for m, own in file.items() if key in own] for key in _KEYS
        }
        objectives = Objectives.parse(
            of_file["ttft"] + arguments.ttft,
            of_file["itl"] + arguments.itl,
            of_file["errors"] + arguments.errors,
            Scope.parse(arguments.by),
            loading=of_file["loading"] + arguments.loading,
            to_zero=[
                *(model for model, own in file.items() if own.get("scale_to_zero")),
                *arguments.scale_to_zero,
            ],
            page_when=arguments.page_when,
        )
        edits = Edits.parse(arguments.disable, arguments.severity, arguments.wait)
        groups(objectives=objectives, edits=edits)
    except ValueError as error:
        parser.error(str(error))
    places = Places(runbooks=arguments.runbooks, grafana=arguments.grafana)
    return Options(places, objectives, edits)


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Settings by model. Raises ValueError."""
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--objectives {path}: {' '.join(str(error).split())}") from None
    models = found.items() if isinstance(found, dict) else [("all of it", found)]
    for model, own in models:
        if not isinstance(own or {}, dict) or (own or {}).keys() - {*_KEYS}:
            known = ", ".join(_KEYS)
            raise ValueError(f"--objectives {path}: {model}: expected models with some of {known}")
    return {str(model): own or {} for model, own in models}
