"""Options of the generators: addresses of links, and service-level objectives."""

import argparse
from typing import NamedTuple

from alerts.objectives import Objectives
from alerts.rule import Places
from monitoring.addresses import GRAFANA, RUNBOOKS


class Options(NamedTuple):
    """Settings that differ between installations."""

    places: Places
    objectives: Objectives


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `python -m alerts` and `python -m deploy` share."""
    parser.add_argument("--grafana", default=GRAFANA, help="address that dashboard links lead to")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address that runbook links lead to")
    parser.add_argument(
        "--ttft",
        action="append",
        default=[],
        metavar="MODEL=SECONDS",
        help="objective for the first token of one model, a bound of the histogram; repeatable",
    )


def chosen(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Options:
    """The options given; a bad value ends the program with a message that names it."""
    try:
        objectives = Objectives.parse(arguments.ttft)
    except ValueError as error:
        parser.error(str(error))
    return Options(Places(runbooks=arguments.runbooks, grafana=arguments.grafana), objectives)
