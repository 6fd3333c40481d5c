"""For which server an alert fires: as the document says, and as promtool finds without the rest."""

import json
import re

import pytest
import yaml

from kvscope_alerts.coverage import (
    KINDS,
    NO,
    WITH_NVML,
    YES,
    coverage,
    table,
)
from tests.alerts.tools import RULE_FILE
from tests.repo.checkout import ROOT

COVERAGE = coverage()
SELECTOR = re.compile(r'\w+\{(?:[^}"]|"[^"]*")*\}')
RULES = [
    rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]
]


def test_the_document_has_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text()
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
