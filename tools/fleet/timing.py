"""The fleet's last hours in a real Prometheus with the shipped rules: rounds and panels, timed."""

import time
from pathlib import Path

from tools.fleet.day import Clock
from tools.fleet.fleet import Wanted, healthy, read_by_rules, write
from tools.fleet.library import library
from tools.fleet.panels import SCRAPE_SECONDS, Cost, costs, expressions
from tools.fleet.play import Say, record_past
from tools.fleet.recording import Recording
from tools.fleet.rounds import CONFIG, Rounds, watch
from tools.fleet.storage import storage

BOARDS = ("overview", "service-levels")
DENSE_HOURS, SPARSE_HOURS, SPARSE_STEP = 1, 6, 60
"""Scraped as shipped as far back as most windows go, and each minute as far as the longest."""


def prepare(
    folder: Path, servers: int, recordings: dict[str, Recording], end: int, tool: str, say: Say
) -> None:
    """Write the series of that many servers. end: Unix, when the last scrape was or will be."""
    recent = Clock(end=end, step=SCRAPE_SECONDS, count=DENSE_HOURS * 3600 // SCRAPE_SECONDS)
    start = end - DENSE_HOURS * 3600
    earlier = Clock(end=start, step=SPARSE_STEP, count=SPARSE_HOURS * 3600 // SPARSE_STEP)
    rules = read_by_rules()
    drawn = Wanted([expr for board in BOARDS for expr in expressions(board)])
    for clock, chosen in ((earlier, rules), (recent, lambda key: rules(key) or drawn(key))):
        days = healthy(servers, clock, library(recordings, chosen))
        say(f"{write(days, folder / 'data', tool):,} samples, one in {clock.step} s")
    record_past(folder, folder / "data", earlier, tool, say)


def measure(folder: Path, end: int, say: Say) -> tuple[Rounds, list[Cost]]:
    """Rounds of rules, then panels, at the end of those series. Nothing else is to run then.

    Raises RuntimeError where the end is over: rules would see too little of their windows.
    """
    left = end - time.time()
    if left < 0:
        raise RuntimeError(f"writing the series took {-left:.0f} s more than expected")
    say(f"{left:.0f} s until the last scrape")
    time.sleep(left)
    with storage(folder, folder / "data", config=CONFIG) as prometheus:
        rounds = watch(prometheus)
        say(f"a round of all rules: {rounds.seconds:.2f} s")
    with storage(folder, folder / "data") as prometheus:
        return rounds, [cost for board in BOARDS for cost in costs(prometheus, board, end)]


def next_end(servers: int) -> int:
    """Unix time before which the series of this many servers can be written."""
    return int(time.time() + 60 + 6 * servers) // SPARSE_STEP * SPARSE_STEP
