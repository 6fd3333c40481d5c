"""Alertmanager's configuration: accepted, and every alert goes where its severity says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import alerting
from deploy.manifests import of_alertmanager
from kvscope_alerts.bare import packs
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Alert
from kvscope_alerts.rules import alerts
from kvscope_alerts.timing import seconds_of
from tests.alerts.tools import ALERTMANAGER, run

ALERTS = [*alerts(), *(alert for server in SERVERS for alert in packs.alerts(server))]
FILES = sorted(ALERTMANAGER.glob("*.yml"))
RECEIVERS = {"critical": "on-call", "warning": "team", "none": "watchdog"}


def name(path: Path) -> str:
    return path.name


@pytest.mark.amtool
@pytest.mark.parametrize("path", FILES, ids=name)
def test_amtool_accepts_the_configuration(path: Path) -> None:
    run("amtool", "check-config", str(path))


def alternatives(pattern: str) -> list[str]:
    """Values of a regular expression with (a|b): one for each combination."""
    before, bracket, rest = pattern.partition("(")
    if not bracket:
        return [pattern]
    inner, _, after = rest.partition(")")
    return [before + each + end for each in inner.split("|") for end in alternatives(after)]


def top_level(pattern: str) -> list[str]:
    """Parts between the `|` that are in no bracket."""
    return re.findall(r"(?:[^|(]|\([^)]*\))+", pattern)


def test_inhibition_names_alerts_that_exist() -> None:
    config: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())
    rules = config["inhibit_rules"]
    matchers = [m for r in rules for m in (*r["source_matchers"], *r["target_matchers"])]
    names = {alert.name for alert in ALERTS}
    patterns = [
        pattern
        for matcher in matchers
        for patterns in re.findall(r'^alertname!?[=~]~?"(.+)"$', matcher)
        for pattern in top_level(patterns)
    ]
    assert len(patterns) > 20
    for pattern in patterns:
        for each in alternatives(pattern):
            assert any(re.fullmatch(each, name) for name in names), each


@pytest.mark.amtool
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_routed_by_its_severity(alert: Alert) -> None:
    run(
        *("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}/alertmanager.yml"),
        f"--verify.receivers={RECEIVERS[alert.severity]}",
        *(f"alertname={alert.name}", f"severity={alert.severity}", f"topic={alert.topic}"),
    )


def test_what_other_alertmanagers_need_is_as_generated() -> None:
    for path, text in of_alertmanager().items():
        assert path.read_text() == text, "run `python -m deploy`"
    plain, addressed = alerting.shipped(), alerting.webhook()
    named = [receiver.pop("webhook_configs", None) for receiver in addressed["receivers"]]
    assert addressed == plain
    assert [bool(each) for each in named] == [True, True, True, False], "page-only is not told"


def test_the_stacks_own_alertmanager_gets_every_rule_and_keeps_its_own() -> None:
    values = alerting.stack_values()["alertmanager"]["config"]
    ours = alerting.shipped()["inhibit_rules"]
    assert values["inhibit_rules"][-len(ours) :] == ours
    stock = values["inhibit_rules"][: -len(ours)]
    assert {"target_matchers": ["alertname = InfoInhibitor"]} in stock
    made = alerting.alertmanager_config({})["spec"]["inhibitRules"]
    assert [rule["equal"] for rule in made] == [rule["equal"] for rule in ours]
    assert all(m["value"] or m["matchType"] in ("=", "!=") for r in made for m in r["targetMatch"])


@pytest.mark.amtool
def test_the_stack_routes_the_watchdog_and_leaves_receivers_to_you(tmp_path: Path) -> None:
    """With the receivers of the chart's own values, and one of yours as the default."""
    config: Any = alerting.stack_values()["alertmanager"]["config"]
    config["route"]["receiver"] = "yours"
    config["receivers"] = [{"name": "null"}, {"name": "yours"}]
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    run("amtool", "check-config", str(path))
    test = ("amtool", "config", "routes", "test", f"--config.file={path}")
    for alert, receiver in (("KvscopeWatchdog", "null"), ("KvscopeModelGone", "yours")):
        run(*test, f"--verify.receivers={receiver}", f"alertname={alert}")


def test_replicas_behind_one_cause_make_one_message() -> None:
    """No one is called once for each server: not by a group of its own, not by too short a wait."""
    root: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())["route"]
    assert root["group_by"] == ["alertname", "model_name", "cluster", "namespace"]
    waits = [route["group_wait"] for route in (root, *root["routes"]) if "group_wait" in route]
    assert all(10 <= seconds_of(wait) <= 30 for wait in waits)
    for route in root["routes"]:
        assert "group_by" not in route
        for card in route.get("routes", ()):
            assert card["group_by"] == ["uuid"]


def test_inhibition_asks_for_labels_that_alerts_have() -> None:
    config: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())
    known = {"instance", "model_name", "engine", "uuid", "topic", "job", "cluster", "namespace"}
    for rule in config["inhibit_rules"]:
        assert set(rule["equal"]) <= known
        assert "cluster" in rule["equal"] or rule["equal"] == ["uuid"], "addresses are a cluster's"
