"""A server without kvscope that fails is one message: what a real Alertmanager silences."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvscope_alerts.bare.packs import alerts
from kvscope_alerts.bare.server import SERVERS, Server
from tests.alerts.stack import alertmanager, webhook
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow]

OWN = ("sign", "objective")
PLACE = {"cluster": "west", "namespace": "chat"}
both = pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("alertmanager")
    with webhook() as hook, alertmanager(folder, hook.url, inhibit=True) as address:
        yield address


def fired(server: Server, name: str, **labels: str) -> dict[str, str]:
    """Labels of an alert of the pack, and those of its series."""
    (rule,) = (
        rule
        for rule in alerts(server)
        if rule.name == server.prefix + name
        and all(rule.labels.get(own, labels.get(own)) == labels.get(own) for own in OWN)
    )
    own = {"alertname": rule.name, "severity": rule.severity, "topic": rule.topic, **rule.labels}
    return {**PLACE, **own, **labels}


def check(url: str, situation: str, expected: set[str], *everything: dict[str, str]) -> None:
    """Those that are not silenced are the expected ones; the cluster keeps situations apart.

    Alertmanager answers before its inhibitor has read the alerts, so it is asked again.
    """
    sent = [{"labels": {**labels, "cluster": situation}} for labels in everything]
    httpx.post(f"{url}/api/v2/alerts", json=sent, timeout=5).raise_for_status()
    query = {"filter": f'cluster="{situation}"'}

    def told() -> bool:
        heard: Any = httpx.get(f"{url}/api/v2/alerts", params=query, timeout=5).json()
        audible = [each["labels"] for each in heard if not each["status"]["inhibitedBy"]]
        names = {labels["alertname"] + labels.get("sign", "") for labels in audible}
        return len(heard) == len(sent) and names == expected

    wait_for(told, f"of {situation} only {expected} is told")


def engine_of(server: Server) -> dict[str, str]:
    target = {"instance": "a:8000", "job": server.word, "model_name": "demo"}
    return {**target, server.engine: "0"}


@both
def test_a_server_that_is_down_is_all_that_is_told_of_it(url: str, server: Server) -> None:
    target = {"instance": "a:8000", "job": server.word}
    check(
        url,
        f"down-{server.word}",
        {f"{server.prefix}TargetDown"},
        fired(server, "TargetDown", **target),
        fired(server, "ServerFails", **target, sign="http"),
        fired(server, "KvCacheFull", **engine_of(server), sign="full"),
        fired(server, "ServerSlow", **target, sign="first-token", model_name="demo"),
    )


@both
def test_a_server_that_is_down_says_nothing_of_another(url: str, server: Server) -> None:
    down = fired(server, "TargetDown", instance="a:8000", job=server.word)
    full = fired(
        server, "KvCacheFull", **engine_of(server) | {"instance": "b:8000", "sign": "full"}
    )
    failing = fired(server, "ServerFails", instance="a:8000", job=server.word, sign="http")
    expected = {down["alertname"], full["alertname"] + "full"}
    check(url, f"other-{server.word}", expected, down, full, failing)


@both
def test_an_engine_that_hangs_is_not_called_slow_or_failing(url: str, server: Server) -> None:
    target = {"instance": "a:8000", "job": server.word}
    check(
        url,
        f"hangs-{server.word}",
        {f"{server.prefix}EngineStalled"},
        fired(server, "EngineStalled", **engine_of(server)),
        fired(server, "QueueStuck", **engine_of(server)),
        fired(server, "ServerFails", **target, sign="http"),
        fired(server, "ServerSlow", **target, sign="inter-token", model_name="demo"),
        fired(server, "PrefixHitRateCollapsed", **engine_of(server)),
        fired(server, "BudgetBurnsSlowly", model_name="demo", objective="ttft", sign="slowly"),
    )


@both
def test_one_server_that_fails_is_named_not_the_budget(url: str, server: Server) -> None:
    target = {"instance": "a:8000", "job": server.word}
    if server.word == "vllm":
        named = fired(server, "ServerFails", **engine_of(server), sign="engine")
        same = [fired(server, "ServerFails", **target, sign="http")]
        budget = fired(server, "ErrorBudgetBurns", model_name="demo")
    else:
        named = fired(server, "ServerFails", **target, sign="http")
        same = []
        budget = fired(server, "ErrorBudgetBurns", job=server.word)
    expected = {named["alertname"] + named["sign"]}
    check(url, f"fails-{server.word}", expected, named, budget, *same)


def test_of_the_objectives_of_a_model_the_first_that_is_missed_calls(url: str) -> None:
    server = SERVERS[0]
    names = ("ErrorBudgetBurns", "TtftBudgetBurns", "ItlBudgetBurns")
    burning = [fired(server, name, model_name="demo") for name in names]
    burning.append(fired(server, "KvCacheFull", model_name="demo", sign="full"))
    check(url, "objectives", {"VllmErrorBudgetBurns"}, *burning)
