"""A fleet of servers with eight GPUs each, for a day: false pages, faults, and what rules cost.

    python -m tools.fleet [--servers 50] [--hours 24] [--step 60]

Needs prometheus, promtool and prometheus-alertmanager on PATH, a C compiler, ten minutes and three
GiB of disk. Every figure of "A day of a fleet" in docs/guides/alerts.md is from this program.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.alerts.tools import promtools
from tools.fleet.day import Clock
from tools.fleet.faults import FAULTS
from tools.fleet.fleet import healthy, read_by_rules, struck, write
from tools.fleet.library import library
from tools.fleet.losses import LOSSES
from tools.fleet.outcome import UNTOLD, Outcome, outcomes
from tools.fleet.panels import Cost
from tools.fleet.play import Firing, Say, play
from tools.fleet.recording import Recording
from tools.fleet.recordings import record_all
from tools.fleet.rounds import Rounds
from tools.fleet.timing import measure, next_end, prepare

WELL = "healthy"
"""The cluster in which nothing happens."""
LOST = "lost"
"""The cluster of those faults that take a few servers."""
FASTER = 200.0
"""Than time, in Alertmanager."""
LEAST = 25
SHOWN = 6
"""Rules and panels of each board: those that cost most."""


def main() -> int:
    """Whether healthy servers were silent, and every fault was reported as expected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--step", type=int, default=60, help="seconds from scrape to scrape")
    parser.add_argument("--minutes", type=float, default=5, help="of each recorded run")
    parser.add_argument(
        "--no-costs", action="store_true", help="do not time rules and panels, on a busy machine"
    )
    chosen = parser.parse_args()
    if chosen.servers < LEAST:
        parser.error(f"--servers: at least {LEAST}, or one fault takes the servers of another")
    tool, began = promtools()[0], time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        recordings = record_all(folder, chosen.minutes, say)
        end = int(time.time()) // chosen.step * chosen.step
        clock = Clock(end=end, step=chosen.step, count=int(chosen.hours * 3600 / chosen.step))
        false, results = _two_days(folder, chosen.servers, clock, recordings, tool, say)
        _print(chosen.servers, chosen.hours, false, results)
        if not chosen.no_costs:
            end = next_end(chosen.servers)
            prepare(folder, chosen.servers, recordings, end, tool, say)
            _print_costs(*measure(folder, end, say))
    right = all(result.alert == result.fault.alert for result in results)
    return 0 if right and not false else 1


def _two_days(
    folder: Path,
    servers: int,
    clock: Clock,
    recordings: Mapping[str, Recording],
    tool: str,
    say: Say,
) -> tuple[list[Firing], list[Outcome]]:
    """False alarms of healthy servers, and the outcomes of the others' faults."""
    pages = library(recordings, read_by_rules())
    well = healthy(servers, clock, pages, WELL)
    days, when = struck(servers, clock, pages, FAULTS)
    others, later = struck(LEAST, clock, pages, LOSSES, LOST)
    data = folder / "data"
    samples = write([*well, *days, *others], data, tool)
    targets = len(well) + len(days) + len(others)
    say(f"{samples:,} samples of {targets} targets written")
    fired = play(folder, data, clock, tool, say)
    shutil.rmtree(data)
    say(f"{len(fired)} alerts fired; now through Alertmanager")
    begin = min(clock.times[pages.start] for each in (when, later) for pages in each[:1])
    early = [one for one in fired if one.cluster == WELL or one.since < begin]
    false = [one for one in early if one.severity != UNTOLD]
    results = []
    for cluster, faults, pages_of in (("struck", FAULTS, when), (LOST, LOSSES, later)):
        told = [one for one in fired if one.cluster == cluster]
        results += outcomes(folder, faults, pages_of, clock, told, faster=FASTER)
    return false, results


def _print(servers: int, hours: float, false: list[Firing], results: list[Outcome]) -> None:
    print(f"{servers} healthy servers, {hours:g} h: {len(false)} alerts of warning or critical")
    for one in false:
        print(f"  {one.name} {dict(one.labels)} for {(one.until - one.since) / 60:g} min")
    print("\n| fault | alert | severity | after | messages | fired as well |")
    print("|---|---|---|---|---|---|")
    for result in results:
        told = result.messages[0].notices[0].labels["severity"] if result.messages else ""
        after = "" if result.seconds is None else f"{result.seconds / 60:.0f} min"
        row = (
            *(result.fault.what, result.alert or "none", told, after),
            *(str(len(result.messages)), ", ".join(result.others)),
        )
        print("| " + " | ".join(row) + " |")
        for seconds, notices in result.messages[1:]:
            first = notices[0].labels
            print(f"  {seconds / 60:.0f} min: {first['alertname']}, {first['severity']}")
        if result.alert != result.fault.alert:
            print(f"  expected {result.fault.alert}")


def _print_costs(rounds: Rounds, panels: list[Cost]) -> None:
    print(f"\na round of all rules: {rounds.seconds:.2f} s")
    for name, seconds in sorted(rounds.rules.items(), key=lambda pair: -pair[1])[:SHOWN]:
        print(f"  {seconds * 1000:5.0f} ms  {name}")
    for board in dict.fromkeys(panel.board for panel in panels):
        print(f"{board}: seconds of a panel, of its slowest query")
        mine = [panel for panel in panels if panel.board == board]
        for panel in sorted(mine, key=lambda panel: -panel.seconds)[:SHOWN]:
            print(f"  {panel.seconds:6.2f} {panel.slowest:6.2f}  {panel.panel}")


if __name__ == "__main__":
    sys.exit(main())
