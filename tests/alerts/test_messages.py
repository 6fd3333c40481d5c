"""A failure is one message: what fires in it, by the shipped rules, goes through Alertmanager."""

import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import httpx
import pytest

from tests.alerts import failures
from tests.alerts.stack import Notice, alertmanager, webhook
from tests.alerts.timeline import Alert, firing
from tests.alerts.tools import promtools

pytestmark = [
    pytest.mark.waits,
    pytest.mark.promtool,
    pytest.mark.alertmanager,
    pytest.mark.slow,
]

FASTER = 200.0
"""Than time: 50 minutes from the failure to the end take 15 s, a group's wait 0.15 s."""
SITUATIONS = {
    situation.name: situation
    for situation in (
        failures.switch(),
        failures.stuck_rollout(),
        failures.crashing_rollout(),
        failures.sick_card(),
        failures.full_pools(),
        failures.bad_replica(),
        failures.healthy(),
    )
}


class Played(NamedTuple):
    """By situation: the alerts that fired at some time, and the messages about any of them."""

    fired: dict[str, set[Alert]]
    messages: dict[str, list[list[Notice]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All situations at once, each in a cluster of its own, from the calm before to the end."""
    folder = tmp_path_factory.mktemp("messages")
    timelines = firing(folder, SITUATIONS.values(), promtools()[0])
    fired = {
        name: {alert for _, alerts in changes for alert in alerts}
        for name, changes in timelines.items()
    }
    changes = sorted(
        ((seconds, name, alerts) for name, line in timelines.items() for seconds, alerts in line),
        key=lambda change: change[:2],
    )
    with webhook() as hook, alertmanager(folder, hook.url, inhibit=True, faster=FASTER) as url:
        before: dict[str, frozenset[Alert]] = {}
        start = time.monotonic() - failures.CALM * 60 / FASTER
        for seconds, name, alerts in changes:
            time.sleep(max(0.0, start + seconds / FASTER - time.monotonic()))
            ended = before.get(name, frozenset()) - alerts
            _post(url, alerts, timedelta(hours=1))
            _post(url, ended, timedelta(0))
            before[name] = alerts
        time.sleep(max(0.0, start + failures.END * 60 / FASTER - time.monotonic()))
    messages: dict[str, list[list[Notice]]] = {name: [] for name in SITUATIONS}
    for message in hook.messages:
        ((cluster, receiver),) = {(n.labels["cluster"], n.receiver) for n in message}
        if receiver != "page-only":  # it has no address as shipped
            messages[cluster].append(message)
    return Played(fired, messages)


def _post(url: str, alerts: frozenset[Alert], left: timedelta) -> None:
    ends = (datetime.now(UTC) + left).isoformat()
    body = [{"labels": dict(alert), "endsAt": ends} for alert in alerts]
    httpx.post(f"{url}/api/v2/alerts", json=body, timeout=5).raise_for_status()


@pytest.mark.parametrize(
    ("name", "receiver", "alert"),
    [
        ("switch", "on-call", "KvscopeManyTargetsDown"),
        ("rollout", "team", "KvscopeTargetNeverUp"),
        ("crash", "on-call", "KvscopeRestartLoop"),
        ("card", "on-call", "KvscopeXidCritical"),
        ("pool", "on-call", "KvscopeTtftBudgetBurnsFast"),
        ("replica", "on-call", "KvscopeErrorOutlier"),
    ],
)
def test_a_failure_is_one_message(played: Played, name: str, receiver: str, alert: str) -> None:
    assert len(played.fired[name]) > 1, "there is something to put together"
    said = [
        {(notice.receiver, notice.status, notice.labels["alertname"]) for notice in message}
        for message in played.messages[name]
    ]
    assert said == [{(receiver, "firing", alert)}]


def test_a_message_about_replicas_names_each_of_them(played: Played) -> None:
    for name in ("rollout", "crash"):
        (message,) = played.messages[name]
        assert len({notice.labels["instance"] for notice in message}) == 5


def test_a_healthy_fleet_is_silent_while_one_pod_is_replaced(played: Played) -> None:
    assert not played.fired["healthy"]
    assert not played.messages["healthy"]
