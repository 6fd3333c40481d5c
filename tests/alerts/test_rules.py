"""The rules are what the generator writes, complete, on known metrics, and seen in each state."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.rules import groups, mapping, rule_file
from kvscope_alerts.thresholds import HARMLESS_XIDS, JOB, XIDS
from kvscope_alerts.timing import Timing, seconds_of
from kvscope_exporter.catalogue import metric
from kvscope_exporter.state.buckets import FIRST_TOKEN_SECONDS, INTER_TOKEN_SECONDS
from kvscope_monitoring.objectives import ITL_SECONDS, TTFT_SECONDS
from tests.alerts.cases import FILES, cases_of
from tests.alerts.tools import (
    ALERTS,
    RULE_FILE,
    WATCHDOG,
    known_names,
    names_in,
    promtools,
    run,
)
from tests.repo.checkout import ROOT, relative

RULES: list[Any] = [
    rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERT_RULES = [rule for rule in RULES if "alert" in rule]
RECORDS = [rule for rule in RULES if "record" in rule]
CASES = [case for path in FILES for case in cases_of(path)]
TOOLS = promtools() or ["promtool"]


def rule_id(rule: Any) -> str:
    if "record" in rule:
        return str(rule["record"])
    labels = rule["labels"]
    own = [labels[name] for name in ("objective", "sign", "what") if name in labels]
    return "-".join([rule["alert"], labels["severity"], *own])


def test_a_name_has_one_severity_and_one_summary_and_there_are_few() -> None:
    """A name with two severities hides one of them in other stacks; a message has a title only if
    its alerts share a summary."""
    names = {rule["alert"] for rule in ALERT_RULES}
    assert len(names - {"KvscopeWatchdog"}) <= 31
    for name in names:
        mine = [rule for rule in ALERT_RULES if rule["alert"] == name]
        assert len({rule["labels"]["severity"] for rule in mine}) == 1, name
        assert len({rule["annotations"]["summary"] for rule in mine}) == 1, name


def test_nothing_about_kvscope_itself_is_critical() -> None:
    ours = {"exporter", "watchdog"}
    critical = {r["alert"] for r in ALERT_RULES if r["labels"]["severity"] == "critical"}
    assert critical.isdisjoint(r["alert"] for r in ALERT_RULES if r["labels"]["topic"] in ours)
    assert critical.isdisjoint({"KvscopeSidecarDown", "KvscopeTargetAbsent", "KvscopeGpuUnread"})


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
            assert level in ("engine", "server", "model", "gpu", "workload")
            assert name.startswith(("kvscope_", "dcgm_"))
            assert re.fullmatch(
                r"sum|count|last|max([17]d)?|timestamp(7d)?|ratio|(ratio_|mean_)?rate\d+[mhd]|increase\d+[mhd]",
                operation,
            )


def test_groups_are_uniform_and_rules_distinct() -> None:
    assert len({rule_id(rule) for rule in RULES}) == len(RULES)
    for group in groups():
        kinds = {type(rule).__name__ for rule in group.rules}
        assert kinds == ({"Record"} if group.name.endswith(".rules") else {"Alert"}), group.name


def test_rules_mean_the_same_in_other_stacks() -> None:
    """VictoriaMetrics' `changes` counts the first sample as well; Mimir takes 20 rules a group."""
    assert not [rule_id(rule) for rule in RULES if "changes(" in rule["expr"]]
    assert all(len(group.rules) <= 20 for group in groups())


def test_a_case_sees_every_rule_quiet_pending_firing_and_resolved(
    subtests: pytest.Subtests,
) -> None:
    """The warning beside a page has its expression, but for the number of replicas: of each such
    pair one case is enough."""
    seen = [(alert.rule, alert.only) for case in CASES for alert in case.alerts]
    whole = [rule for rule, only in seen if not only]
    signs = {rule["labels"].get("sign") for rule in whole}
    for rule in (r for r in ALERT_RULES if r["alert"] != WATCHDOG):
        with subtests.test(rule_id(rule)):
            beside = "server:kvscope_replicas:count >=" in rule["expr"].splitlines()[-1]
            assert rule in whole or (beside and rule["labels"]["sign"] in signs)
    said = "".join(f"{alert.annotations}" for case in CASES for alert in case.alerts)
    assert not re.search(r"\{\{|<no value>|\bNaN\b|\bInf\b", said)


def test_every_xid_has_one_severity() -> None:
    known = set(metric("kvscope_gpu_xid_events_total").closed_labels["xid"])
    listed = [xid for xids in (*XIDS.values(), HARMLESS_XIDS) for xid in xids]
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
@pytest.mark.parametrize("path", FILES, ids=relative)
def test_promtool_sees_a_case_pass_by_the_rules_that_it_needs(
    path: Path, tool: str, tmp_path: Path
) -> None:
    written = [case.write(tmp_path, number) for number, case in enumerate(cases_of(path))]
    run(tool, "test", "rules", *map(str, written))


def test_the_document_has_a_row_for_every_alert_with_its_severity() -> None:
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text()
    rows = re.findall(r"^\| \[`(Kvscope\w+)`\]\(\S+\) \| (\w+) \|", page, re.MULTILINE)
    assert rows == [*{r["alert"]: r["labels"]["severity"] for r in ALERT_RULES}.items()]


def test_every_recorded_series_is_read() -> None:
    """By a rule, a board or a runbook: each is evaluated again and again."""
    texts = [rule["expr"] for rule in RULES]
    texts += [path.read_text() for path in (ROOT / "dashboards").glob("*.json")]
    texts += [path.read_text() for path in (ALERTS / "runbooks").glob("*.md")]
    read = set(re.findall(r"\w+(?::\w+)+", " ".join(texts)))
    assert [rule["record"] for rule in RECORDS if rule["record"] not in read] == []
