"""Two days of a fleet: false alarms of healthy servers, and the alerts of the others' faults.

Every figure of "A day of a fleet" in docs/operate/alerts.md but the costs is from this program.
"""

import time
from pathlib import Path

from tests.alerts.tools import promtools
from tools.chaos.fleet.day import Clock
from tools.chaos.fleet.faults import FAULTS, LOSSES
from tools.chaos.fleet.fleet import healthy, read_by_rules, struck, write
from tools.chaos.fleet.outcome import UNTOLD, Outcome, outcomes
from tools.chaos.fleet.play import play
from tools.chaos.fleet.recording import record_all
from tools.chaos.frame import Say

FASTER = 200.0
"""Than time, in Alertmanager."""
LEAST = 25


def run(servers: int, hours: float, step: int, minutes: float, folder: Path, say: Say) -> list[str]:
    """False alarms, and faults that were not reported as expected. hours: of each day."""
    if servers < LEAST:
        return [f"at least {LEAST} servers, or one fault takes the servers of another"]
    tool = promtools()[0]
    pages = record_all(folder, minutes, say, read_by_rules())
    clock = Clock(end=int(time.time()) // step * step, step=step, count=int(hours * 3600 / step))
    well = healthy(servers, clock, pages, "healthy")
    days, when = struck(servers, clock, pages, FAULTS)
    others, later = struck(LEAST, clock, pages, LOSSES, "lost")
    samples = write([*well, *days, *others], folder / "data", tool)
    say(f"{samples:,} samples of {len(well) + len(days) + len(others)} targets written")
    fired = play(folder, folder / "data", clock, tool, say)
    say(f"{len(fired)} alerts fired; now through Alertmanager")
    begin = min(clock.times[when[0].start], clock.times[later[0].start])
    found = [
        f"false: {one.name} {dict(one.labels)} for {(one.until - one.since) / 60:g} min"
        for one in fired
        if (one.cluster == "healthy" or one.since < begin) and one.severity != UNTOLD
    ]
    say("fault | alert | severity | after | messages | fired as well")
    for cluster, faults, pages_of in (("struck", FAULTS, when), ("lost", LOSSES, later)):
        told = [one for one in fired if one.cluster == cluster]
        for result in outcomes(folder, faults, pages_of, clock, told, faster=FASTER):
            say(_row(result))
            if result.alert != result.fault.alert:
                found.append(f"{result.fault.what}: {result.alert}, not {result.fault.alert}")
    return found


def _row(result: Outcome) -> str:
    firsts = [(seconds, notices[0].labels) for seconds, notices in result.messages]
    told = firsts[0][1]["severity"] if firsts else ""
    after = "" if result.seconds is None else f"{result.seconds / 60:.0f} min"
    later = [
        f"{labels['alertname']} after {seconds / 60:.0f} min" for seconds, labels in firsts[1:]
    ]
    messages = "; ".join([str(len(firsts)), *later])
    others = ", ".join(result.others)
    return " | ".join((result.fault.what, result.alert or "none", told, after, messages, others))
