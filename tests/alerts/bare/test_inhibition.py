"""A server without kvscope that fails is one message: what the shipped rules silence."""

import pytest

from kvscope.backtest.evaluation import Firing
from kvscope.backtest.inhibition import SHIPPED, held_back, inhibition_rules
from kvscope_alerts.bare.packs import alerts
from kvscope_alerts.bare.server import SERVERS, Server

OWN = ("sign", "objective")
PLACE = {"cluster": "west", "namespace": "chat"}
both = pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)


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


def check(expected: set[str], *everything: dict[str, str]) -> None:
    """Those that are not held back; test_messages.py compares a real Alertmanager with this."""
    firings = [Firing(tuple(sorted(labels.items())), 0, 60) for labels in everything]
    audible = set(firings) - held_back(firings, inhibition_rules(SHIPPED))
    labels = [dict(each.labels) for each in audible]
    assert {each["alertname"] + each.get("sign", "") for each in labels} == expected


def engine_of(server: Server) -> dict[str, str]:
    target = {"instance": "a:8000", "job": server.word, "model_name": "demo"}
    return {**target, server.engine: "0"}


@both
def test_a_server_that_is_down_is_all_that_is_told_of_it(server: Server) -> None:
    target = {"instance": "a:8000", "job": server.word}
    check(
        {f"{server.prefix}TargetDown"},
        fired(server, "TargetDown", **target),
        fired(server, "ServerFails", **target, sign="http"),
        fired(server, "KvCacheFull", **engine_of(server), sign="full"),
        fired(server, "ServerSlow", **target, sign="first-token", model_name="demo"),
    )


@both
def test_a_server_that_is_down_says_nothing_of_another(server: Server) -> None:
    down = fired(server, "TargetDown", instance="a:8000", job=server.word)
    full = fired(
        server, "KvCacheFull", **engine_of(server) | {"instance": "b:8000", "sign": "full"}
    )
    failing = fired(server, "ServerFails", instance="a:8000", job=server.word, sign="http")
    expected = {down["alertname"], full["alertname"] + "full"}
    check(expected, down, full, failing)


@both
def test_an_engine_that_hangs_is_not_called_slow_or_failing(server: Server) -> None:
    target = {"instance": "a:8000", "job": server.word}
    check(
        {f"{server.prefix}EngineStalled"},
        fired(server, "EngineStalled", **engine_of(server)),
        fired(server, "QueueStuck", **engine_of(server)),
        fired(server, "ServerFails", **target, sign="http"),
        fired(server, "ServerSlow", **target, sign="inter-token", model_name="demo"),
        fired(server, "PrefixHitRateCollapsed", **engine_of(server)),
        fired(server, "BudgetBurnsSlowly", model_name="demo", objective="ttft", sign="slowly"),
    )


@both
def test_one_server_that_fails_is_named_not_the_budget(server: Server) -> None:
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
    check(expected, named, budget, *same)


def test_of_the_objectives_of_a_model_the_first_that_is_missed_calls() -> None:
    server = SERVERS[0]
    names = ("ErrorBudgetBurns", "TtftBudgetBurns", "ItlBudgetBurns")
    burning = [fired(server, name, model_name="demo") for name in names]
    burning.append(fired(server, "KvCacheFull", model_name="demo", sign="full"))
    check({"VllmErrorBudgetBurns"}, *burning)
