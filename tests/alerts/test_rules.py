"""The rules are what the generator writes, complete, on known metrics, and seen in each state."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.rules import groups, mapping, rule_file
from kvscope_alerts.thresholds import JOB, XIDS
from kvscope_alerts.timing import Timing, seconds_of
from kvscope_exporter.catalogue import metric
from kvscope_exporter.state.buckets import FIRST_TOKEN_SECONDS, INTER_TOKEN_SECONDS
from kvscope_monitoring.objectives import ITL_SECONDS, TTFT_SECONDS
from tests.alerts.tools import (
    ALERTS,
    CASE_FILES,
    RULE_FILE,
    WATCHDOG,
    known_names,
    names_in,
    promtools,
    rules_of,
    run,
)
from tests.repo.checkout import ROOT, relative

RULES: list[Any] = [
    rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERT_RULES = [rule for rule in RULES if "alert" in rule]
RECORDS = [rule for rule in RULES if "record" in rule]
CASES: list[Any] = [
    case for path in CASE_FILES for case in yaml.safe_load(path.read_text())["tests"]
]
TOOLS = promtools() or ["promtool"]


def rule_id(rule: Any) -> str:
    if "record" in rule:
        return str(rule["record"])
    labels = rule["labels"]
    return f"{rule['alert']}-{labels['severity']}{labels.get('sign', '')}"


def test_the_committed_file_is_what_the_generator_writes() -> None:
    assert RULE_FILE.read_text() == rule_file(), "run `python -m kvscope_alerts`"
    assert yaml.safe_load(rule_file()) == mapping()


def test_an_alert_says_what_it_is(subtests: pytest.Subtests) -> None:
    for rule in ALERT_RULES:
        with subtests.test(rule_id(rule)):
            assert re.fullmatch(r"Kvscope[A-Z][A-Za-z0-9]+", rule["alert"])
            always = rule["alert"] == WATCHDOG
            severities = ("none",) if always else ("critical", "warning", "info")
            assert rule["labels"]["severity"] in severities
            assert rule["labels"]["topic"]
            assert "$value" not in str(rule["labels"]), "a new alert at every evaluation"
            assert always or seconds_of(rule["for"]) > 0
            annotations = rule["annotations"]
            assert "{{" not in annotations["summary"], "a templated summary breaks grouping"
            assert annotations["summary"].endswith(".")
            assert always or "{{" in annotations["description"], "whom it is about"
            assert annotations["runbook_url"].endswith(f"/alerts/runbooks/{rule['alert']}.md")
            assert "/d/kvscope-" in annotations["dashboard_url"]


def test_a_rule_asks_for_known_metrics(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(rule_id(rule)):
            recorded = {record["record"] for record in RECORDS}
            assert names_in(rule["expr"]) <= known_names() | recorded
            assert names_in(rule["expr"]) or rule.get("alert") == WATCHDOG


def test_a_recording_rule_is_named_by_level_metric_and_operation(subtests: pytest.Subtests) -> None:
    for rule in RECORDS:
        with subtests.test(rule_id(rule)):
            level, name, operation = rule["record"].split(":")
            assert level in ("engine", "server", "model")
            assert name.startswith("kvscope_")
            assert re.fullmatch(
                r"sum|count|max(7d)?|timestamp(7d)?|ratio|(ratio_|mean_)?rate\d+[mhd]|increase\d+[mhd]",
                operation,
            )


def test_recording_rules_are_in_groups_of_their_own() -> None:
    for group in groups():
        kinds = {type(rule).__name__ for rule in group.rules}
        assert kinds == ({"Record"} if group.name.endswith(".rules") else {"Alert"}), group.name


def test_no_two_rules_are_told_apart_by_nothing() -> None:
    assert len({rule_id(rule) for rule in RULES}) == len(RULES)


def test_cases_see_an_alert_quiet_pending_firing_and_resolved(subtests: pytest.Subtests) -> None:
    for rule in (r for r in ALERT_RULES if r["alert"] != WATCHDOG):
        with subtests.test(rule_id(rule)):
            (case,) = (case for case in CASES if case["name"] == rule["alert"])
            assert {check["alertname"] for check in case["alert_rule_test"]} == {rule["alert"]}
            seen = [bool(check["exp_alerts"]) for check in case["alert_rule_test"]]
            assert seen == [False, False, True, False], "quiet, pending, firing, resolved"
            quiet, pending = (check["exp_samples"] for check in case["promql_expr_test"])
            assert not quiet, "at first not even pending"
            own = {"severity", "topic", "sign"} & rule["labels"].keys()
            here = [f'{label}="{rule["labels"][label]}"' for label in own]
            states = [
                state["labels"] for state in pending if all(x in state["labels"] for x in here)
            ]
            assert states
            assert all('alertstate="pending"' in state for state in states)
            fired = [
                alert["exp_annotations"]
                for alert in case["alert_rule_test"][2]["exp_alerts"]
                if rule["labels"].items() <= alert["exp_labels"].items()
            ]
            assert fired
            for annotations in fired:
                assert annotations.keys() == rule["annotations"].keys()
                assert not re.search(r"\{\{|<no value>|\bNaN\b|\bInf\b", str(annotations))


def test_every_case_belongs_to_an_alert() -> None:
    assert {case["name"] for case in CASES} == {rule["alert"] for rule in ALERT_RULES}


def test_every_xid_has_one_severity() -> None:
    known = set(metric("kvscope_gpu_xid_events_total").closed_labels["xid"])
    listed = [xid for xids in XIDS.values() for xid in xids]
    assert len(listed) == len(set(listed))
    assert set(listed) == known - {"154"}, "154 announces a recovery action, which has an alert"


def test_the_thresholds_of_latencies_are_buckets() -> None:
    assert TTFT_SECONDS in FIRST_TOKEN_SECONDS
    assert ITL_SECONDS in INTER_TOKEN_SECONDS


def test_the_job_is_the_one_that_the_stack_scrapes() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert JOB in {job["job_name"] for job in config["scrape_configs"]}


def test_shortened_rules_differ_in_durations_alone() -> None:
    short: Any = mapping(Timing(divisor=60))
    shipped: Any = mapping()
    for ours, theirs in zip(short["groups"], shipped["groups"], strict=True):
        assert ours["name"] == theirs["name"]
        for mine, its in zip(ours["rules"], theirs["rules"], strict=True):
            assert mine.keys() == its.keys()
            assert mine.get("annotations") == its.get("annotations")
            if "for" in its and mine["alert"] != WATCHDOG:
                assert seconds_of(mine["for"]) <= seconds_of(its["for"])
            assert names_in(mine["expr"]) == names_in(its["expr"])


@pytest.mark.promtool
@pytest.mark.parametrize("tool", TOOLS)
def test_promtool_accepts_the_rules(tool: str) -> None:
    run(tool, "check", "rules", "--lint=all", "--lint-fatal", str(RULE_FILE))


@pytest.mark.promtool
@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("path", CASE_FILES, ids=relative)
def test_promtool_sees_a_case_pass_by_the_rules_that_it_needs(
    path: Path, tool: str, tmp_path: Path
) -> None:
    content: Any = yaml.safe_load(path.read_text())
    written = []
    for case in content.pop("tests"):
        rules = rules_of(case["name"])
        (tmp_path / f"{case['name']}.rules.yml").write_text(yaml.safe_dump(rules))
        names = [group["name"] for group in rules["groups"]]
        order = [name for name in content["group_eval_order"] if name in names]
        own = {
            "rule_files": [f"{case['name']}.rules.yml"],
            "group_eval_order": order,
            "tests": [case],
        }
        written.append(tmp_path / f"{case['name']}.test.yml")
        written[-1].write_text(yaml.safe_dump(content | own))
    run(tool, "test", "rules", *map(str, written))


@pytest.mark.promtool
@pytest.mark.nightly
@pytest.mark.weekly
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("path", CASE_FILES, ids=relative)
def test_promtool_sees_the_cases_pass_by_all_rules(path: Path, tool: str) -> None:
    run(tool, "test", "rules", str(path))


def test_the_document_has_a_row_for_every_alert_with_its_severity() -> None:
    page = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    rows = re.findall(r"^\| \[`(Kvscope\w+)`\]\(\S+\) \| ([\w ]+) \|", page, re.MULTILINE)
    severities: dict[str, list[str]] = {}
    for rule in ALERT_RULES:
        named = severities.setdefault(rule["alert"], [])
        if rule["labels"]["severity"] not in named:
            named.append(rule["labels"]["severity"])
    assert rows == [(alert, " or ".join(found)) for alert, found in severities.items()]


def test_every_recorded_series_is_read() -> None:
    """By a rule, a board or a runbook: each is evaluated again and again."""
    texts = [rule["expr"] for rule in RULES]
    texts += [path.read_text() for path in (ROOT / "dashboards").glob("*.json")]
    texts += [path.read_text() for path in (ALERTS / "runbooks").glob("*.md")]
    read = set(re.findall(r"\w+(?::\w+)+", " ".join(texts)))
    assert [rule["record"] for rule in RECORDS if rule["record"] not in read] == []
