"""The outcome of each fault of a day: which alerts, after how long, and how many messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.alerts.delivery import Message, Timeline, deliver
from tests.alerts.timeline import Alert
from tools.chaos.fleet.day import Clock
from tools.chaos.fleet.faults import Fault
from tools.chaos.fleet.play import Firing

UNTOLD = "info"
"""The severity without messages."""
AFTERWARDS_SECONDS = 900
"""In which late messages may come."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one fault, until the next one begins. Times in seconds after it began."""

    fault: Fault
    fired: list[Firing]
    messages: list[Message]
    """Those that say something new: not the repetitions, not that it is over."""

    @property
    def alert(self) -> str | None:
        """Alert of the first message."""
        return self.messages[0].notices[0].labels["alertname"] if self.messages else None

    @property
    def seconds(self) -> int | None:
        """Until that alert fired."""
        return next((one.since for one in self.fired if one.name == self.alert), None)

    @property
    def others(self) -> list[str]:
        """Names of other alerts that fired, notified or not."""
        return sorted({one.name for one in self.fired} - {self.alert})


def outcomes(
    folder: Path,
    faults: Sequence[Fault],
    pages: Sequence[slice],
    clock: Clock,
    fired: Sequence[Firing],
    *,
    faster: float,
) -> list[Outcome]:
    """Each fault's alerts through Alertmanager, as if in a cluster of its own."""
    starts = [int(clock.times[when.start]) for when in pages]
    ends = [*starts[1:], clock.end + 1]
    mine = {}
    for fault, start, end in zip(faults, starts, ends, strict=True):
        mine[fault.name] = [
            Firing(_in_cluster(one, fault.name), one.since - start, min(one.until, end) - start)
            for one in fired
            if start <= one.since < end
        ]
    timelines = {name: timeline(firings) for name, firings in mine.items()}
    last = max((change[0] for line in timelines.values() for change in line), default=0)
    sent = deliver(folder, timelines, start=0, end=last + AFTERWARDS_SECONDS, faster=faster)
    return [Outcome(fault, mine[fault.name], _news(sent[fault.name])) for fault in faults]


def _in_cluster(firing: Firing, name: str) -> Alert:
    return tuple(sorted((dict(firing.labels) | {"cluster": name}).items()))


def timeline(firings: Sequence[Firing]) -> Timeline:
    """The moments at which something changes, and what fires from then on."""
    moments = sorted({one.since for one in firings} | {one.until for one in firings})
    return [
        (now, frozenset(one.labels for one in firings if one.since <= now < one.until))
        for now in moments
    ]


def _news(messages: Sequence[Message]) -> list[Message]:
    """Messages in which something fires that is new."""
    told: set[tuple[str, Alert]] = set()
    news = []
    for message in messages:
        firing = {
            (notice.receiver, tuple(sorted(notice.labels.items())))
            for notice in message.notices
            if notice.status == "firing"
        }
        if firing - told:
            news.append(message)
        told |= firing
    return news
