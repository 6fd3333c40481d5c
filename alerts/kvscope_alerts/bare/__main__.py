"""Print the rules for servers without kvscope with the settings of an installation."""

import argparse

from kvscope_alerts.bare.limits import Settings, pairs
from kvscope_alerts.bare.packs import pack_file
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Places
from kvscope_alerts.scope import Scope
from kvscope_monitoring.addresses import GRAFANA, RUNBOOKS


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kvscope_alerts.bare", description=__doc__)
    words = {server.word: server for server in SERVERS}
    parser.add_argument("server", choices=list(words))
    parser.add_argument("--job", metavar="REGEX", help="scrape jobs (default: the server's name)")
    parser.add_argument(
        "--by",
        default=",".join(Scope().labels),
        metavar="LABELS",
        help="labels that make a service, to sum and to compare by (default: %(default)s)",
    )
    for flag, what in (("--ttft", "the first token"), ("--itl", "the gap between two tokens")):
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar="MODEL=SECONDS",
            help=f"objective for {what} of one model, a bound of the histogram; repeatable",
        )
    parser.add_argument(
        "--any-bound",
        action="store_true",
        help="take objectives that are bounds only of your servers' own histograms",
    )
    parser.add_argument("--grafana", default=GRAFANA, help="address that dashboard links lead to")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address that runbook links lead to")
    given = parser.parse_args(arguments)
    try:
        settings = Settings(
            job=given.job or given.server,
            by=Scope.parse(given.by).labels,
            first_token=pairs("--ttft", given.ttft),
            gap=pairs("--itl", given.itl),
            any_bound=given.any_bound,
        )
        places = Places(runbooks=given.runbooks, grafana=given.grafana)
        text = pack_file(words[given.server], settings, places)
    except ValueError as error:
        parser.error(str(error))
    print(text, end="")


if __name__ == "__main__":
    main()
