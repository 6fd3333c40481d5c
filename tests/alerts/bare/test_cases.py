"""Every alert of the packs: quiet, pending, firing with its texts, resolved, through promtool."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.bare.packs import alerts, groups
from kvscope_alerts.bare.server import SERVERS, Server
from kvscope_alerts.rule import Places, Record
from kvscope_alerts.timing import Timing
from tests.alerts.bare.budgets import budgets
from tests.alerts.bare.situations import Situation, situations
from tests.alerts.cases import filled
from tests.alerts.tools import promtools, run

QUIET = {"30s": "29m", "1m": "115m"}
EVALUATED = {"30s": "30s", "1m": "5m"}
"""By the interval of the samples."""


def rule_of(server: Server, name: str, labels: dict[str, str]) -> dict[str, Any]:
    (found,) = (r for r in alerts(server) if r.name == name and labels.items() <= r.labels.items())
    mapping: dict[str, Any] = found.mapping(Timing(), Places())
    return mapping


def case(server: Server, situation: Situation, interval: str) -> dict[str, Any]:
    name = server.prefix + situation.alert
    rule = rule_of(server, name, situation.only)
    annotations = {key: filled(text, situation.about) for key, text in rule["annotations"].items()}
    fired = {
        "exp_labels": {**situation.about, **rule["labels"]},
        "exp_annotations": {**annotations, "description": situation.said},
    }
    waiting = {"alertname": name, **rule["labels"]}
    matchers = ",".join(f'{label}="{value}"' for label, value in waiting.items())
    of = {**waiting, **situation.about, "alertstate": "pending"}
    pending = ",".join(f'{label}="{value}"' for label, value in of.items())
    ask = f"ALERTS{{{matchers}}}"
    quiet = QUIET[interval]
    return {
        "name": f"{name} {situation.only}",
        "interval": interval,
        "input_series": [{"series": k, "values": v} for k, v in situation.series.items()],
        "promql_expr_test": [
            {"expr": ask, "eval_time": quiet, "exp_samples": []},
            {
                "expr": ask,
                "eval_time": situation.pending,
                "exp_samples": [{"labels": f"ALERTS{{{pending}}}", "value": 1}],
            },
            {"expr": ask, "eval_time": situation.resolved, "exp_samples": []},
        ],
        "alert_rule_test": [
            {"alertname": name, "eval_time": at, "exp_alerts": expected}
            for at, expected in (
                (quiet, []),
                (situation.firing, [fired]),
                (situation.resolved, []),
            )
        ],
    }


def relevant(server: Server, alert: str, only: dict[str, str]) -> list[dict[str, Any]]:
    """The groups of an alert, with its rules and what they read: all rules take too long."""
    own = [
        rule
        for rule in alerts(server)
        if rule.name == alert and only.items() <= rule.labels.items()
    ]
    asked = " ".join(rule.expr for rule in own)
    found = []
    for group in groups(server):
        wanted = [
            r for r in group.rules if r in own or (isinstance(r, Record) and r.record in asked)
        ]
        if wanted:
            found.append(replace(group, rules=wanted).mapping(Timing(), Places()))
    return found


def check(server: Server, played: list[Situation], interval: str, folder: Path) -> None:
    paths = []
    for number, situation in enumerate(played):
        each = case(server, situation, interval)
        read = relevant(server, server.prefix + situation.alert, situation.only)
        (folder / f"{number}.rules.yml").write_text(yaml.safe_dump({"groups": read}))
        document = {
            "rule_files": [f"{number}.rules.yml"],
            "evaluation_interval": EVALUATED[interval],
            "group_eval_order": [group["name"] for group in read],
            "tests": [each],
        }
        paths.append(folder / f"{number}.test.yml")
        paths[-1].write_text(yaml.safe_dump(document, sort_keys=False))
    for tool in promtools():
        run(tool, "test", "rules", *map(str, paths))


@pytest.mark.promtool
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)
def test_an_alert_is_quiet_pending_firing_and_resolved(server: Server, tmp_path: Path) -> None:
    check(server, situations(server), "30s", tmp_path)


@pytest.mark.promtool
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)
def test_a_budget_that_burns_is_quiet_pending_firing_and_resolved(
    server: Server, tmp_path: Path
) -> None:
    check(server, budgets(server), "1m", tmp_path)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)
def test_every_rule_has_a_case(server: Server) -> None:
    seen = {
        (server.prefix + each.alert, *sorted(each.only.items()))
        for each in (*situations(server), *budgets(server))
    }
    rules = {(rule.name, *sorted(rule.labels.items())) for rule in alerts(server)}
    left_out = ("objective", "errors"), ("sign", "fast")  # few bad ones: that of first tokens
    assert rules - seen == {(f"{server.prefix}BudgetBurnsSlowly", *left_out)}
    assert not seen - rules
