"""For which server an alert fires: as the document says, and as promtool finds without the rest."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.coverage import KINDS, NO, WITH_NVML, YES, Kind, coverage, table
from tests.alerts.tools import CASE_FILES, DAYS, WATCHDOG, promtools, rules_of, run
from tests.repo.checkout import ROOT

COVERAGE = coverage()
FILES = [path for path in CASE_FILES if path.name not in DAYS]
"""Alerts of the other files need the same as those of these files."""


def test_the_document_has_the_table() -> None:
    page = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    assert table() in page, "python -m alerts.coverage prints it"


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
    ],
)
def test_an_alert_fires_for_the_servers_that_tell_what_it_needs(
    alert: str, title: str, answer: str
) -> None:
    assert COVERAGE[alert][title] == answer


def _told(case: Any, kind: Kind) -> list[Any]:
    """Its series without those that such a server does not report."""
    found = []
    for each in case["input_series"]:
        name = re.match(r"\w+", each["series"])
        assert name is not None
        if kind.has(name[0]):
            found.append(each)
    return found


@pytest.mark.promtool
@pytest.mark.slow
@pytest.mark.parametrize("title", KINDS)
def test_a_case_fires_without_the_series_that_a_kind_lacks(tmp_path: Path, title: str) -> None:
    """Those cases that lose any, without NVML; the others are what test_rules.py runs."""
    kind = KINDS[title]
    written = []
    for path in FILES:
        content: Any = yaml.safe_load(path.read_text())
        for case in content.pop("tests"):
            alert, firing = case["name"], case.pop("alert_rule_test")
            told = _told(case, kind)
            if alert == WATCHDOG or len(told) == len(case["input_series"]):
                continue
            rules = tmp_path / f"{alert}.rules.yml"
            rules.write_text(yaml.safe_dump(rules_of(alert)))
            state = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
            one = [{"labels": "{}", "value": 1}]
            case["input_series"] = told
            case["promql_expr_test"] = [
                {
                    "expr": f"clamp_max(count({state}), 1)",
                    "eval_time": firing[2]["eval_time"],
                    "exp_samples": one if COVERAGE[alert][title] == YES else [],
                }
            ]
            target = tmp_path / f"{alert}.test.yml"
            whole = content | {"rule_files": [str(rules)], "tests": [case]}
            target.write_text(yaml.safe_dump(whole))
            written.append(str(target))
    run(promtools()[0], "test", "rules", *written)
