"""Every alert is complete: labels, texts, a runbook, and cases that see it in each state."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.catalogue import CATALOGUE
from tests.repo.checkout import ROOT, relative

ALERTS = ROOT / "alerts"
RULE_FILES = sorted(ALERTS.glob("*.rules.yml"))
TEST_FILES = sorted((ALERTS / "tests").glob("*.test.yml"))
RUNBOOK_SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation")


def all_alerts() -> list[Any]:
    groups = [g for path in RULE_FILES for g in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def all_cases() -> list[Any]:
    return [case for path in TEST_FILES for case in yaml.safe_load(path.read_text())["tests"]]


def alert_id(rule: Any) -> str:
    return str(rule["alert"])


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", all_alerts(), ids=alert_id)
def test_an_alert_says_what_it_is(rule: Any) -> None:
    assert re.fullmatch(r"Kvscope[A-Z][A-Za-z0-9]+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "$value" not in str(rule["labels"]), "a new alert at every evaluation"
    assert rule.get("for") or "increase(" in rule["expr"]
    annotations = rule["annotations"]
    assert "{{" not in annotations["summary"], "a templated summary breaks grouping"
    assert annotations["description"]
    assert annotations["runbook_url"] == f"alerts/runbooks/{rule['alert']}.md"


@pytest.mark.parametrize("rule", all_alerts(), ids=alert_id)
def test_an_alert_asks_for_known_metrics(rule: Any) -> None:
    suffixes = ("", "_bucket", "_sum", "_count")
    known = {row.name + suffix for row in CATALOGUE for suffix in suffixes}
    assert set(re.findall(r"\bkvscope_[a-z0-9_]+", rule["expr"])) <= known


@pytest.mark.parametrize("rule", all_alerts(), ids=alert_id)
def test_an_alert_has_a_runbook(rule: Any) -> None:
    text = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    assert text.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(RUNBOOK_SECTIONS)


def test_every_runbook_belongs_to_an_alert() -> None:
    names = {path.stem for path in (ALERTS / "runbooks").glob("*.md")}
    assert names == {alert_id(rule) for rule in all_alerts()}


@pytest.mark.parametrize("rule", all_alerts(), ids=alert_id)
def test_cases_see_an_alert_quiet_pending_firing_and_resolved(rule: Any) -> None:
    (case,) = (case for case in all_cases() if case["name"] == rule["alert"])
    assert {check["alertname"] for check in case["alert_rule_test"]} == {rule["alert"]}
    seen = [bool(check["exp_alerts"]) for check in case["alert_rule_test"]]
    assert seen == [False, False, True, False]
    states = [s["labels"] for check in case["promql_expr_test"] for s in check["exp_samples"]]
    assert any('alertstate="pending"' in labels for labels in states)


@pytest.mark.promtool
@pytest.mark.parametrize("path", RULE_FILES, ids=relative)
def test_promtool_accepts_the_rules(path: Path) -> None:
    run("promtool", "check", "rules", "--lint=all", "--lint-fatal", str(path))


@pytest.mark.promtool
@pytest.mark.parametrize("path", TEST_FILES, ids=relative)
def test_promtool_sees_the_cases_pass(path: Path) -> None:
    run("promtool", "test", "rules", str(path))
