"""Service levels by model: each judged by its own, and refused where no bucket can judge it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.__main__ import main
from alerts.objectives import Objectives
from alerts.rules import rule_file
from tests.alerts.tools import promtools, run

CASE: dict[str, Any] = {
    "evaluation_interval": "1m",
    "rule_files": ["rules.yml"],
    "tests": [
        {
            "interval": "1m",
            "input_series": [
                {"series": f'{family}{{model_name="{model}"{labels}}}', "values": values}
                for model in ("quick", "org/long")
                for family, labels, values in (
                    ("kvscope_time_to_first_token_seconds_count", "", "0+60x120"),
                    ("kvscope_time_to_first_token_seconds_bucket", ',le="2.5"', "0+30x120"),
                    ("kvscope_time_to_first_token_seconds_bucket", ',le="10"', "0+60x120"),
                )
            ],
            "promql_expr_test": [
                {
                    "expr": "model:kvscope_ttft_bad:ratio_rate1h",
                    "eval_time": "2h",
                    "exp_samples": [
                        {
                            "labels": 'model:kvscope_ttft_bad:ratio_rate1h{model_name="quick"}',
                            "value": 0.5,
                        },
                        {
                            "labels": 'model:kvscope_ttft_bad:ratio_rate1h{model_name="org/long"}',
                            "value": 0,
                        },
                    ],
                }
            ],
        }
    ],
}
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


def test_an_objective_between_two_bounds_is_refused_with_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--ttft", "llama=2.4"])
    message = capsys.readouterr().err
    assert "the objective of llama is 2.4 s" in message
    assert "2, 2.5, 3" in message


@pytest.mark.parametrize("pair", ["llama", "llama=", "=5", "llama=soon"])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="expected MODEL=SECONDS, as in llama-70b=5"):
        Objectives.parse([pair])
