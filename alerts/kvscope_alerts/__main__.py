"""Generate the rule file for Prometheus, alerts/kvscope.rules.yml, and those for other servers."""

import argparse
from pathlib import Path

from kvscope_alerts.bare import packs
from kvscope_alerts.options import add_options, chosen
from kvscope_alerts.rules import rule_file
from kvscope_alerts.timing import Timing

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


if __name__ == "__main__":
    main()
