"""Firing alerts go through a real Alertmanager as shipped, many times as fast as time."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.alerts.stack import Notice, alertmanager, webhook
from tests.alerts.timeline import Alert

Timeline = list[tuple[int, frozenset[Alert]]]
"""Seconds at which the set of firing alerts changes, and the set."""
UNREAD = "page-only"
"""The receiver that has no address as shipped."""


class Message(NamedTuple):
    """A message, at that second of its timeline."""

    seconds: float
    notices: list[Notice]


def deliver(
    folder: Path,
    timelines: Mapping[str, Timeline],
    *,
    start: float,
    end: float,
    faster: float,
    stack: bool = False,
) -> dict[str, list[Message]]:
    """By name of the timeline, its messages in order; it is the `cluster` of its alerts.

    All are played at once, from second `start` to second `end`. stack: through the Alertmanager of
    kube-prometheus-stack.
    """
    changes = sorted(
        ((seconds, name, alerts) for name, line in timelines.items() for seconds, alerts in line),
        key=lambda change: change[:2],
    )
    with (
        webhook() as hook,
        alertmanager(folder, hook.url, inhibit=True, faster=faster, stack=stack) as url,
    ):
        before: dict[str, frozenset[Alert]] = {}
        began = time.monotonic() - start / faster
        for seconds, name, alerts in changes:
            time.sleep(max(0.0, began + seconds / faster - time.monotonic()))
            ended = before.get(name, frozenset()) - alerts
            _post(url, alerts, timedelta(hours=1))
            _post(url, ended, timedelta(0))
            before[name] = alerts
        time.sleep(max(0.0, began + end / faster - time.monotonic()))
    messages: dict[str, list[Message]] = {name: [] for name in timelines}
    for arrival, notices in zip(hook.arrivals, hook.messages, strict=True):
        ((cluster, receiver),) = {(n.labels["cluster"], n.receiver) for n in notices}
        if receiver not in (UNREAD, "null"):
            messages[cluster].append(Message((arrival - began) * faster, notices))
    return messages


def _post(url: str, alerts: frozenset[Alert], left: timedelta) -> None:
    ends = (datetime.now(UTC) + left).isoformat()
    body = [{"labels": dict(alert), "endsAt": ends} for alert in alerts]
    httpx.post(f"{url}/api/v2/alerts", json=body, timeout=5).raise_for_status()
