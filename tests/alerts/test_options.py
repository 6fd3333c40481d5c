"""Options of the generators about who is paged, for which models, and after how long."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.__main__ import main
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rules import rule_file
from tests.alerts.tools import promtools, run


def written(folder: Path, *arguments: str) -> list[Any]:
    """Rules that the generator writes with these arguments."""
    path = folder / "rules.yml"
    main([*arguments, "--out", str(path)])
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def of(rules: list[Any], name: str) -> list[Any]:
    return [rule for rule in rules if rule.get("alert") == name]


def test_a_model_without_an_objective_is_not_judged_by_it(tmp_path: Path) -> None:
    rules = written(tmp_path, "--ttft", "batch=none", "--errors", "batch=none")
    for name, judged in (("ttft", False), ("itl", True), ("request_errors", False)):
        (recorded,) = (r for r in rules if r.get("record") == f"model:kvscope_{name}_judged:rate5m")
        assert ('model_name!="batch"' in recorded["expr"]) is not judged


def test_the_number_of_replicas_below_which_one_pages_can_be_chosen(tmp_path: Path) -> None:
    rules = written(tmp_path, "--page-when", "replicas<2")
    critical, *_ = of(rules, "KvscopeEngineDown")
    warning, *_ = of(rules, "KvscopeReplicaDown")
    assert critical["expr"].endswith("server:kvscope_replicas:count >= 2")
    assert critical["expr"].replace("\nunless on", "\nand on") == warning["expr"]


def test_an_alert_can_be_switched_off_demoted_and_slowed_down(tmp_path: Path) -> None:
    rules = written(
        tmp_path,
        *("--disable", "KvscopeGpuUnread", "--severity", "KvscopeEngineDown=warning"),
        *("--for", "KvscopeEngineDown=15m", "--runbooks", "https://wiki.example.com/kvscope"),
    )
    assert not of(rules, "KvscopeGpuUnread")
    assert of(rules, "KvscopeGpuSlow")
    down = of(rules, "KvscopeEngineDown")
    assert {rule["labels"]["severity"] for rule in down} == {"warning"}
    assert {rule["for"] for rule in down} == {"15m"}
    runbook = down[0]["annotations"]["runbook_url"]
    assert runbook == "https://wiki.example.com/kvscope/KvscopeEngineDown.md"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--disable", "KvscopeEngineDwn"),
            "--disable KvscopeEngineDwn: there is no such alert; did you mean KvscopeEngineDown?",
        ),
        (("--severity", "KvscopeEngineDown=loud"), "expected one of critical, warning, info"),
        (("--severity", "KvscopeEngineDown"), "expected NAME=SEVERITY"),
        (("--for", "KvscopeEngineDown=later"), "'later' is not a duration"),
        (("--for", "Nothing=5m"), "--for Nothing: there is no such alert"),
        (("--page-when", "often"), "--page-when 'often': expected replicas<N"),
        (("--loading", "llama=soon"), "--loading 'llama=soon': 'soon' is not a duration"),
        (("--loading", "llama"), "expected MODEL=DURATION, as in llama-405b=60m"),
    ],
)
def test_a_bad_value_is_named(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(list(arguments))
    assert complaint in capsys.readouterr().err


def test_a_model_may_scale_to_zero(tmp_path: Path) -> None:
    rules = written(tmp_path, "--scale-to-zero", "night")
    for name in ("KvscopeModelGone", "KvscopeReplicaDown"):
        rule = of(rules, name)[-1]
        assert 'model_name!="night"' in rule["expr"]


def _state(instance: str, model: str) -> list[dict[str, str]]:
    target = f'job="kvscope",instance="{instance}"'
    return [
        {"series": f'kvscope_server_state{{{target},state="loading"}}', "values": "1x120"},
        {"series": f'kvscope_server_state{{{target},state="ready"}}', "values": "0x120"},
        {"series": f"up{{{target}}}", "values": "1x120"},
        {
            "series": f'kvscope_source_up{{{target},model_name="{model}",engine="0"}}',
            "values": "1x120",
        },
    ]


@pytest.mark.promtool
def test_a_model_may_take_longer_to_load(tmp_path: Path) -> None:
    """Both load for forty minutes and on; one of them is given an hour."""
    objectives = Objectives.parse(loading=["llama-3.1-405b=60m"])
    (tmp_path / "rules.yml").write_text(rule_file(objectives=objectives))
    ready = "KvscopeServerNotReady"
    firing = f'count by (instance) (ALERTS{{alertname="{ready}",alertstate="firing"}})'
    case = {
        "evaluation_interval": "1m",
        "rule_files": ["rules.yml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [*_state("small", "demo"), *_state("large", "llama-3.1-405b")],
                "promql_expr_test": [
                    {
                        "expr": firing,
                        "eval_time": at,
                        "exp_samples": [
                            {"labels": f'{{instance="{name}"}}', "value": 1} for name in names
                        ],
                    }
                    for at, names in (("40m", ["small"]), ("70m", ["small", "large"]))
                ],
            }
        ],
    }
    (tmp_path / "case.yml").write_text(yaml.safe_dump(case))
    for tool in promtools():
        run(tool, "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
        run(tool, "test", "rules", str(tmp_path / "case.yml"))
