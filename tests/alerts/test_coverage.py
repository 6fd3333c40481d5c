"""For which server an alert fires: as the document says, and as promtool finds without the rest."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.coverage import KINDS, NO, WITH_NVML, YES, Kind, coverage, table
from tests.alerts.tools import CASE_FILES, DAYS, RULE_FILE, WATCHDOG, promtools, rules_of, run
from tests.repo.checkout import ROOT

COVERAGE = coverage()
SELECTOR = re.compile(r'\w+\{(?:[^}"]|"[^"]*")*\}')
RULES = [
    rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]
]
FILES = [path for path in CASE_FILES if path.name not in DAYS]
"""Alerts of the other files need the same as those of these files."""


def test_the_document_has_the_table() -> None:
    page = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    assert table() in page, "python -m kvscope_alerts.coverage prints it"


@pytest.mark.parametrize(
    ("alert", "title", "answer"),
    [
        ("KvscopeDeviceOom", "own engine", YES),
        ("KvscopeDeviceOom", "observed vLLM", NO),
        ("KvscopeXidCritical", "observed vLLM", WITH_NVML),
        ("KvscopeKvPoolSaturated", "vLLM by page", NO),
        ("KvscopeTierThrashes", "vLLM by KV events and page", YES),
        ("KvscopeObserverStopped", "own engine", NO),
        ("KvscopeServerGone", "vLLM by page", YES),
        ("KvscopeEngineDead", "vLLM by page", NO),
        ("KvscopeModelGone", "vLLM by page", YES),
        ("KvscopeErrorOutlier", "SGLang by page", NO),
        ("KvscopeTtftBudgetBurnsFast", "SGLang by page", YES),
    ],
)
def test_an_alert_fires_for_the_servers_that_tell_what_it_needs(
    alert: str, title: str, answer: str
) -> None:
    assert COVERAGE[alert][title] == answer


@pytest.mark.parametrize(
    ("selector", "without"),
    [
        ('kvscope_time_to_first_token_seconds_bucket{le="2.5"}', {"SGLang by page"}),
        ('kvscope_time_to_first_token_seconds_bucket{le="2.0"}', set(KINDS) - {"SGLang by page"}),
        ('kvscope_source_up{model_name!=""}', {"vLLM by page", "SGLang by page"}),
        ('kvscope_requests_finished_total{reason="error"}', {"SGLang by page"}),
    ],
)
def test_a_selector_needs_its_labels_and_its_bound(selector: str, without: set[str]) -> None:
    assert {title for title, kind in KINDS.items() if not kind.has(selector)} == without


def test_a_rule_that_asks_for_a_bound_finds_one_in_the_histograms_of_every_kind() -> None:
    asked = {s for rule in RULES for s in SELECTOR.findall(rule["expr"]) if "le=" in s}
    assert asked
    for title, kind in KINDS.items():
        families: dict[str, bool] = {}
        for selector in asked:
            name = selector.partition("{")[0]
            if kind.has(name):
                families[name] = families.get(name, False) or kind.has(selector)
        assert all(families.values()), (title, families)


def test_a_panel_that_asks_for_a_bound_finds_one_in_the_histograms_of_every_kind() -> None:
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        values = {v["name"]: v.get("current", {}).get("value") for v in board["templating"]["list"]}
        for selector in SELECTOR.findall(path.read_text().replace('\\"', '"')):
            if "le=" not in selector or not selector.startswith("kvscope_"):
                continue
            chosen = selector.replace("$ttft", values.get("ttft") or "")
            chosen = chosen.replace("$itl", values.get("itl") or "")
            for title, kind in KINDS.items():
                name = selector.partition("{")[0]
                assert not kind.has(name) or kind.has(chosen), (path.name, title, selector)


DETAIL = re.compile(r', ?(model_name|engine|source|mode|cause)="[^"]*"')
"""Labels of which a server's page has other values than our engine, whose series the cases have."""


def _told(case: Any, kind: Kind) -> list[Any]:
    """Its series without those that such a server does not report."""
    return [each for each in case["input_series"] if kind.has(DETAIL.sub("", each["series"]))]


def _kinds_by_series(case: Any) -> dict[str, list[str]]:
    """Titles of the kinds that lack some of its series, by the series that they report."""
    kinds: dict[str, list[str]] = {}
    for title, kind in KINDS.items():
        told = _told(case, kind)
        if len(told) < len(case["input_series"]):
            kinds.setdefault(json.dumps(told), []).append(title)
    return kinds


@pytest.mark.promtool
@pytest.mark.slow
def test_a_case_fires_without_the_series_that_a_kind_lacks(tmp_path: Path) -> None:
    """Those cases that lose any, without NVML; the others are what test_rules.py runs."""
    written = []
    for path in FILES:
        content: Any = yaml.safe_load(path.read_text())
        for case in content.pop("tests"):
            if case["name"] != WATCHDOG:
                written += _write_cases(tmp_path, case, content)
    run(promtools()[0], "test", "rules", *map(str, written))


def _write_cases(folder: Path, case: Any, content: Any) -> list[Path]:
    """The case for each set of kinds that report the same, with the rest of its file."""
    alert, firing = case["name"], case["alert_rule_test"][2]
    rules = folder / f"{alert}.rules.yml"
    rules.write_text(yaml.safe_dump(rules_of(alert)))
    state = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    files = []
    for number, (told, titles) in enumerate(_kinds_by_series(case).items()):
        (fires,) = {COVERAGE[alert][title] == YES for title in titles}
        check = {
            "expr": f"clamp_max(count({state}), 1)",
            "eval_time": firing["eval_time"],
            "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
        }
        one = case | {
            "name": f"{alert}: {', '.join(titles)}",
            "input_series": json.loads(told),
            "alert_rule_test": [],
            "promql_expr_test": [check],
        }
        file = folder / f"{alert}-{number}.test.yml"
        file.write_text(yaml.safe_dump(content | {"rule_files": [str(rules)], "tests": [one]}))
        files.append(file)
    return files
