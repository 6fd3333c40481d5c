"""For which server an alert fires: as the document says, and as promtool finds without the rest."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.coverage import (
    KINDS,
    NO,
    WITH_NVML,
    YES,
    Kind,
    can_be,
    coverage,
    records_of,
    table,
)
from kvscope_alerts.rules import groups
from tests.alerts.cases import FILES, Case, cases_of
from tests.alerts.tools import RULE_FILE, promtools, run
from tests.repo.checkout import ROOT

COVERAGE = coverage()
SELECTOR = re.compile(r'\w+\{(?:[^}"]|"[^"]*")*\}')
RULES = [
    rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]
]
CASES = [
    case
    for path in FILES
    if path.name.partition(".")[0] not in ("slow", "slo", "before", "kubernetes")
    for case in cases_of(path)
]
"""The other files take days, or ask for what kube-state-metrics and DCGM report."""


def test_the_document_has_the_table() -> None:
    page = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    assert table() in page, "python -m kvscope_alerts.coverage prints it"


@pytest.mark.parametrize(
    ("alert", "title", "answer"),
    [
        ("KvscopeGpuFailed", "observed vLLM", WITH_NVML),
        ("KvscopePreemptionStorm", "vLLM by page", NO),
        ("KvscopeKvBlocksHeld", "own engine", NO),
        ("KvscopeEngineDown", "vLLM by page", YES),
        ("KvscopeModelGone", "vLLM by page", YES),
        ("KvscopeClientsGiveUp", "SGLang by page", NO),
        ("KvscopeTtftBudgetBurns", "SGLang by page", YES),
        ("KvscopeTrafficFell", "SGLang by page", YES),
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


def _told(case: Case, kind: Kind) -> dict[str, str]:
    """Its series without those that such a server does not report."""
    return {k: v for k, v in case.series.items() if kind.has(DETAIL.sub("", k))}


@pytest.mark.promtool
@pytest.mark.slow
def test_a_case_fires_without_the_series_that_a_kind_lacks(tmp_path: Path) -> None:
    """Those cases that lose any, without NVML; the others are what test_rules.py runs."""
    written: list[Path] = []
    for case in CASES:
        kinds: dict[str, list[str]] = {}
        for title, kind in KINDS.items():
            told = _told(case, kind)
            if len(told) < len(case.series):
                kinds.setdefault(json.dumps(told), []).append(title)
        for told_text, titles in kinds.items():
            path = _written(tmp_path, len(written), case, json.loads(told_text), titles)
            written.append(path)
    run(promtools()[0], "test", "rules", *map(str, written))


def _written(
    folder: Path, number: int, case: Case, told: dict[str, str], titles: list[str]
) -> Path:
    """The case of kinds that report the same; the rules of its alerts fire for all or for none."""
    path = replace(case, series=told).write(folder, number)
    content: Any = yaml.safe_load(path.read_text())
    (test,) = content["tests"]
    every = records_of(groups())
    test |= {"name": f"{case.name}: {', '.join(titles)}", "alert_rule_test": []}
    test["promql_expr_test"] = []
    for rule in {alert.rule["expr"]: alert for alert in case.alerts if not alert.only}.values():
        (fires,) = {can_be(rule.rule["expr"], KINDS[title], every) for title in titles}
        own = ",".join(f'{k}="{v}"' for k, v in rule.rule["labels"].items())
        state = f'ALERTS{{alertname="{rule.name}",alertstate="firing",{own}}}'
        test["promql_expr_test"].append(
            {
                "expr": f"clamp_max(count({state}), 1)",
                "eval_time": case.firing,
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        )
    path.write_text(yaml.safe_dump(content))
    return path
