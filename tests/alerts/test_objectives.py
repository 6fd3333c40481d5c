"""Service levels by model: each judged by its own, and refused where no bucket can judge it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.utils import floatToGoString

from kvscope_alerts.__main__ import main
from kvscope_alerts.bare.__main__ import main as bare_main
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rules import rule_file
from kvscope_alerts.scope import Scope
from kvscope_monitoring.bounds import (
    BOUNDS,
    FIRST_TOKEN,
    TOKEN_GAP,
    above,
    at_or_below,
    judged_at,
    limits,
)
from tests.alerts.tools import promtools, run
from tests.repo.checkout import ROOT

FIRST = "kvscope_time_to_first_token_seconds"


def case(
    growth: dict[str, int], models: tuple[str, ...], expr: str, expected: dict[str, float]
) -> dict[str, Any]:
    """promtool's test after an hour and a half. growth: a minute, by series, whose `M` is each
    model; expected: by labels."""
    answers = [{"labels": labels, "value": value} for labels, value in expected.items()]
    values = {name.replace('"M"', f'"{m}"'): each for m in models for name, each in growth.items()}
    series = [{"series": name, "values": f"0+{each}x120"} for name, each in values.items()]
    check = {"expr": expr, "eval_time": "85m", "exp_samples": answers}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [check]}
    return {"evaluation_interval": "1m", "rule_files": ["rules.yml"], "tests": [test]}


RATIO = "model:kvscope_ttft_bad:ratio_rate1h"
CASE = case(
    {
        f'{FIRST}_count{{model_name="M"}}': 60,
        f'{FIRST}_bucket{{model_name="M",le="2.5"}}': 30,
        f'{FIRST}_bucket{{model_name="M",le="10"}}': 60,
    },
    ("quick", "org/long"),
    RATIO,
    {f'{RATIO}{{model_name="quick"}}': 0.5, f'{RATIO}{{model_name="org/long"}}': 0},
)
"""Half of the first tokens of both models take longer than 2.5 s, none longer than 10 s."""


@pytest.mark.promtool
def test_a_model_is_judged_by_its_own_objective(tmp_path: Path) -> None:
    objectives = Objectives.parse(["org/long=10"])
    (tmp_path / "rules.yml").write_text(rule_file(objectives=objectives))
    (tmp_path / "case.yml").write_text(yaml.safe_dump(CASE))
    for tool in promtools():
        run(tool, "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
        run(tool, "test", "rules", str(tmp_path / "case.yml"))


def test_the_description_names_the_limit_of_its_model() -> None:
    text = rule_file(objectives=Objectives.parse(["org/long=10"]))
    limit = '{{ if eq $labels.model_name "org/long" }}10{{ else }}2.5{{ end }} s'
    assert limit in " ".join(text.split())


_TIMELY = {
    f'{FIRST}_count{{model_name="M"}}': 30,
    f'{FIRST}_bucket{{model_name="M",le="2.5"}}': 30,
    f'{FIRST}_bucket{{model_name="M",le="7.5"}}': 30,
}
GIVEN_UP = case(
    {
        **_TIMELY,
        'kvscope_request_abandoned_seconds_count{model_name="M"}': 70,
        'kvscope_request_abandoned_seconds_bucket{model_name="M",le="2.5"}': 40,
        'kvscope_request_abandoned_seconds_bucket{model_name="M",le="10"}': 60,
        **{name.replace('"M"', '"page"'): each for name, each in _TIMELY.items()},
    },
    ("stuck", "org/long"),
    f"round({RATIO}, 0.001)",
    {
        f'{{model_name="{model}"}}': ratio
        for model, ratio in (("stuck", 0.5), ("org/long", 0.25), ("page", 0))
    },
)
"""In a minute 30 first tokens in time, and 70 requests given up: 40 within 2.5 s, 60 within 10 s.
One model's limit is 7.5 s, and one is on a server that does not report requests given up."""


@pytest.mark.promtool
def test_whoever_gives_up_after_the_limit_had_no_first_token_in_time(tmp_path: Path) -> None:
    objectives = Objectives.parse(["org/long=7.5"])
    (tmp_path / "rules.yml").write_text(rule_file(objectives=objectives))
    (tmp_path / "case.yml").write_text(yaml.safe_dump(GIVEN_UP))
    for tool in promtools():
        run(tool, "test", "rules", str(tmp_path / "case.yml"))


DOCUMENTS = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
COMMANDS = re.findall(r"python -m kvscope_alerts (--[^`>\n]*)", DOCUMENTS)
BARE_COMMANDS = re.findall(
    r"python -m kvscope_alerts[.]bare ((?:vllm|sglang) [^`>\n]*)", DOCUMENTS.replace("\\\n", "")
)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_documents_ask_for_limits_that_histograms_have(arguments: str, tmp_path: Path) -> None:
    main([*shlex.split(arguments), "--out", str(tmp_path / "rules.yml")])


@pytest.mark.parametrize("arguments", BARE_COMMANDS)
def test_the_documents_ask_for_limits_that_other_servers_have(arguments: str) -> None:
    bare_main(shlex.split(arguments))


def test_the_documents_show_how_limits_are_set() -> None:
    assert COMMANDS
    assert BARE_COMMANDS


ERRORS = case(
    {
        'kvscope_requests_finished_total{model_name="M",reason="stop"}': 950,
        'kvscope_requests_finished_total{model_name="M",reason="error"}': 50,
        'kvscope_inter_token_latency_seconds_count{model_name="M"}': 1000,
        'kvscope_inter_token_latency_seconds_bucket{model_name="M",le="0.5"}': 1000,
        'kvscope_inter_token_latency_seconds_bucket{model_name="M",le="0.1"}': 500,
    },
    ("quick", "batch"),
    'count by (alertname, model_name) (ALERTS{alertstate="firing",severity="critical"})',
    {
        f'{{alertname="{alert}",model_name="quick"}}': 1
        for alert in ("KvscopeErrorBudgetBurns", "KvscopeItlBudgetBurns")
    },
)
"""5 % of the requests to both models fail, and half of the tokens take longer than 0.1 s."""


@pytest.mark.promtool
def test_errors_and_tokens_are_judged_by_the_objective_of_their_model(tmp_path: Path) -> None:
    objectives = Objectives.parse(itl=["quick=0.1"], errors=["batch=0.99"])
    (tmp_path / "rules.yml").write_text(rule_file(objectives=objectives))
    (tmp_path / "case.yml").write_text(yaml.safe_dump(ERRORS))
    for tool in promtools():
        run(tool, "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
        run(tool, "test", "rules", str(tmp_path / "case.yml"))


def test_services_are_told_apart_by_the_labels_that_are_asked_for() -> None:
    text = rule_file(objectives=Objectives(scope=Scope.parse("region, model_name")))
    assert "sum by (region, model_name) (" in text
    assert "on (region, job, instance, model_name, engine)" in text
    assert "by (cluster, namespace, model_name)" not in text


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [("namespace", "model_name has to be among"), ("model_name,", "'' is not the name of a label")],
)
def test_labels_that_make_no_service_are_refused(
    labels: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--by", labels])
    assert complaint in capsys.readouterr().err


def test_an_objective_between_two_bounds_is_refused_with_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--ttft", "llama=2.4"])
    message = capsys.readouterr().err
    assert "the objective of llama is 2.4 s" in message
    assert "1, 2, 2.5, 4, 5" in message


def test_a_token_limit_between_two_bounds_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"0\.33 s for the next token.*0\.25, 0\.4, 0\.5"):
        Objectives.parse(itl=["llama=0.33"])


@pytest.mark.parametrize("family", [FIRST_TOKEN, TOKEN_GAP])
def test_each_limit_is_judged_by_one_bound_of_the_histograms_of_every_kind(family: str) -> None:
    """The regular expressions of a rule find the bound, and none that counts for it."""
    for limit in limits(family):
        for kind, bounds in BOUNDS[family].items():
            texts = {floatToGoString(bound): bound for bound in bounds}
            below = [texts[text] for text in texts if re.fullmatch(at_or_below(limit), text)]
            over = [texts[text] for text in texts if re.fullmatch(above(limit), text)]
            found = max(below) if below else min(over)
            assert found == judged_at(limit, bounds), (limit, kind)
    assert {1, 2, 2.5, 4, 10} <= {*limits(FIRST_TOKEN)}, "2 and 4 are SGLang's"


@pytest.mark.parametrize("share", ["1", "0", "99.9"])
def test_a_share_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(ValueError, match="give a share between 0 and 1"):
        Objectives.parse(errors=[f"llama={share}"])


@pytest.mark.parametrize("pair", ["llama", "llama=", "=5", "llama=soon"])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="expected MODEL=SECONDS or MODEL=none, as in llama-70b=5"):
        Objectives.parse([pair])
