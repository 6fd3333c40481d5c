"""Generate the rule file for Prometheus, alerts/kvscope.rules.yml, and those for other servers."""

import argparse
from pathlib import Path

from kvscope_alerts.bare import packs
from kvscope_alerts.options import add_options, chosen
from kvscope_alerts.rules import HEADER, mapping, rule_file
from kvscope_alerts.timing import Timing
from kvscope_alerts.yaml_text import to_yaml

RULE_FILE = Path(__file__).parents[1] / "kvscope.rules.yml"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kvscope_alerts", description=__doc__)
    parser.add_argument("--out", type=Path, default=RULE_FILE, help="file to write")
    parser.add_argument(
        "--shorten",
        type=float,
        metavar="N",
        help="print rules with all durations divided by N, for tests, and write nothing",
    )
    add_options(parser)
    given = parser.parse_args(arguments)
    places, objectives, edits = chosen(parser, given)
    if given.shorten is not None:
        print(rule_file(Timing(divisor=given.shorten), places, objectives, edits), end="")
        return
    out: Path = given.out
    out.write_text(rule_file(places=places, objectives=objectives, edits=edits))
    if out == RULE_FILE:
        for _ in packs.write(RULE_FILE.parent, places):
            pass


def printed(arguments: list[str]) -> str:
    """`kvscope alerts generate`: the text of a rule file, or of values for the Helm chart."""
    parser = argparse.ArgumentParser(prog="kvscope alerts generate")
    parser.add_argument("--values", action="store_true", help="values for the Helm chart")
    add_options(parser)
    if "--values" in arguments:
        parser.set_defaults(grafana="")  # the chart's grafanaUrl goes before
    given = parser.parse_args(arguments)
    places, objectives, edits = chosen(parser, given)
    found = mapping(None, places, objectives, edits)
    return to_yaml({"rules": found} if given.values else found, HEADER)


if __name__ == "__main__":
    main()
