"""Alertmanager's configuration: accepted, and every alert goes where its severity says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.bare import packs
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Alert
from kvscope_alerts.rules import alerts
from kvscope_alerts.timing import seconds_of
from tests.alerts.tools import ALERTMANAGER, run

ALERTS = [*alerts(), *(alert for server in SERVERS for alert in packs.alerts(server))]
FILES = sorted(ALERTMANAGER.glob("*.yml"))
RECEIVERS = {
    "critical": "on-call",
    "warning": "team",
    "info": "page-only",
    "none": "watchdog",
}


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


def test_inhibition_names_alerts_that_exist() -> None:
    config: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())
    rules = config["inhibit_rules"]
    matchers = [m for r in rules for m in (*r["source_matchers"], *r["target_matchers"])]
    names = {alert.name for alert in ALERTS}
    patterns = [
        pattern
        for matcher in matchers
        for pattern in re.findall(r'^alertname!?[=~]~?"(.+)"$', matcher)
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


def test_the_example_is_the_configuration_with_addresses() -> None:
    plain: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())
    example: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.webhook.yml").read_text())
    addresses = [receiver.pop("webhook_configs", None) for receiver in example["receivers"]]
    assert example == plain
    named = [receiver["name"] for receiver in example["receivers"]]
    silent = [name for name, address in zip(named, addresses, strict=True) if not address]
    assert silent == ["page-only"]


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
