"""A failure is one message: what fires in it, by the shipped rules, goes through Alertmanager."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kvscope.backtest.evaluation import Firing
from kvscope.backtest.inhibition import SHIPPED, held_back, inhibition_rules
from tests.alerts import failures
from tests.alerts.delivery import Message, Timeline, deliver
from tests.alerts.timeline import Alert, firing
from tests.alerts.tools import promtools

pytestmark = [
    pytest.mark.nightly,
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
        failures.bad_api("api", engine_fails=False),
        failures.bad_api("api of an engine", engine_fails=True),
        failures.scrape_path(),
        failures.silent_pod("sidecar", node_lost=False),
        failures.silent_pod("node", node_lost=True),
        failures.release(),
        failures.scale_in(),
        failures.mixed_cards(),
        failures.healthy(),
    )
}


class Played(NamedTuple):
    """By situation: the alerts that fired at some time, and the messages about any of them."""

    firings: dict[str, list[Firing]]
    fired: dict[str, set[Alert]]
    messages: dict[str, list[Message]]
    stack: bool
    """Whether it was the Alertmanager of kube-prometheus-stack, which has one receiver."""

    def receiver(self, ours: str) -> str:
        return "stack" if self.stack else ours


@pytest.fixture(scope="module", params=["ours", "stack"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All situations at once, each in a cluster of its own, from the calm before to the end; by our
    Alertmanager, and by that of kube-prometheus-stack with our values."""
    folder = tmp_path_factory.mktemp("messages")
    timelines = _timelines(folder)
    fired = {
        name: {alert for _, alerts in changes for alert in alerts}
        for name, changes in timelines.items()
    }
    calm, end = failures.CALM * 60, failures.END * 60
    firings = {name: list(_firings(changes)) for name, changes in timelines.items()}
    stack = request.param == "stack"
    messages = deliver(folder, timelines, start=calm, end=end, faster=FASTER, stack=stack)
    return Played(firings, fired, messages, stack)


_PLAYED: dict[str, Timeline] = {}


def _timelines(folder: Path) -> dict[str, Timeline]:
    """The alerts that fire, evaluated once."""
    if not _PLAYED:
        _PLAYED.update(firing(folder, SITUATIONS.values(), promtools()[0]))
    return _PLAYED


def _firings(changes: Timeline) -> Iterator[Firing]:
    """From when to when each alert fires."""
    since: dict[Alert, int] = {}
    for seconds, alerts in changes:
        for alert in since.keys() - alerts:
            yield Firing(alert, since.pop(alert), seconds)
        for alert in alerts - since.keys():
            since[alert] = seconds
    for alert, began in since.items():
        yield Firing(alert, began, failures.END * 60)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_trial_holds_back_what_alertmanager_does(name: str, played: Played) -> None:
    firings = [f for f in played.firings[name] if f.severity in ("critical", "warning")]
    held = held_back(played.firings[name], inhibition_rules(SHIPPED))
    told = {
        tuple(sorted(notice.labels.items()))
        for message in played.messages[name]
        for notice in message.notices
    }
    assert {firing.labels for firing in firings if firing not in held} == told


def names_in(messages: list[Message]) -> list[tuple[str, str]]:
    """The receiver and the alert of each, by its first notice."""
    return [(m.notices[0].receiver, m.notices[0].labels["alertname"]) for m in messages]


@pytest.mark.parametrize(
    ("name", "receiver", "alert"),
    [
        ("switch", "on-call", "KvscopeManyTargetsDown"),
        ("rollout", "team", "KvscopeServerNotReady"),
        ("crash", "team", "KvscopeReplicaDown"),
        ("pool", "team", "KvscopeBudgetBurnsSlowly"),
        ("replica", "on-call", "KvscopeReplicaFails"),
        ("scrapes", "on-call", "KvscopeManyTargetsDown"),
        ("node", "on-call", "KvscopeEngineDown"),
    ],
)
def test_a_failure_is_one_message(played: Played, name: str, receiver: str, alert: str) -> None:
    assert len(played.fired[name]) > 1, "there is something to put together"
    said = [
        {(notice.receiver, notice.status, notice.labels["alertname"]) for notice in message.notices}
        for message in played.messages[name]
    ]
    assert said == [{(played.receiver(receiver), "firing", alert)}]


def test_a_dead_sidecar_is_one_warning_and_no_dead_server(played: Played) -> None:
    receiver = played.receiver("team")
    assert names_in(played.messages["sidecar"]) == [(receiver, "KvscopeSidecarDown")]


@pytest.mark.parametrize("name", ["release", "evening", "cards"])
def test_what_an_operator_does_every_week_tells_nobody(played: Played, name: str) -> None:
    assert not played.messages[name]


def test_an_api_server_that_fails_by_itself_is_named_and_its_engine_is_not(played: Played) -> None:
    assert names_in(played.messages["api"]) == [(played.receiver("on-call"), "KvscopeReplicaFails")]


def test_what_an_engine_fails_does_not_page_again_as_an_answer_of_its_api(played: Played) -> None:
    assert names_in(played.messages["api of an engine"]) == [
        (played.receiver("on-call"), "KvscopeReplicaFails")
    ]


def test_a_sick_card_of_one_of_ten_does_not_mute_that_its_engine_hangs(played: Played) -> None:
    """The engine pages; the card is named beside it, and lesser alerts follow from it."""
    said = [
        {(notice.receiver, notice.status, notice.labels["alertname"]) for notice in message.notices}
        for message in played.messages["card"]
    ]
    assert said == [
        {(played.receiver("team"), "firing", "KvscopeGpuDegraded")},
        {(played.receiver("on-call"), "firing", "KvscopeEngineStalled")},
    ]


def test_a_message_about_replicas_names_each_of_them(played: Played) -> None:
    for name in ("rollout", "crash"):
        (message,) = played.messages[name]
        assert len({notice.labels["instance"] for notice in message.notices}) == 5


def test_a_healthy_fleet_is_silent_while_one_pod_is_replaced(played: Played) -> None:
    assert not played.fired["healthy"]
    assert not played.messages["healthy"]
