"""`kvscope alerts suggest` and `generate`: objectives from the past, and rules that have them."""

import subprocess
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rules import rule_file
from tests.alerts.timeline import Situation
from tests.alerts.tools import RULE_FILE, promtools
from tests.backtest.test_try import openmetrics
from tests.support.prometheus import prometheus_with

FIRST = "kvscope_time_to_first_token_seconds"


def alerts(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["alerts", *arguments])


def rules_of(text: str) -> object:
    return yaml.safe_load(text)["groups"]


@pytest.mark.promtool
@pytest.mark.prometheus
def test_a_day_of_a_prometheus_suggests_limits_that_generate_takes(tmp_path: Path) -> None:
    day = Situation("here", minutes=24 * 60 + 2)
    # Requests a minute, and those of them with a first token within ten seconds; none within one.
    for model, requests, within in (("a/b", 100, 100), ("rare", 0.1, 0.1), ("c", 9, 0)):
        labels = {"model_name": model, "engine": "0"}
        counts = {"1.0": 0, "10.0": within, "40.0": within, "+Inf": requests}
        for bound, share in counts.items():
            day.count(f"{FIRST}_bucket", {**labels, "le": bound}, (0, share))
        day.count(f"{FIRST}_count", labels, (0, requests))
        for reason, rate in (("stop", requests), ("error", 0.002 * requests)):
            day.count("kvscope_requests_finished_total", {**labels, "reason": reason}, (0, rate))
    begins = int(time.time()) // 60 * 60 - day.minutes * 60
    (tmp_path / "past.om").write_text(openmetrics(day, begins))
    create = [promtools()[0], "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    subprocess.run([*create, str(tmp_path / "past.om"), str(tmp_path / "data")], check=True)
    with prometheus_with("scrape_configs: []\n", tmp_path) as running:
        result = alerts("suggest", "--prometheus", running.url)
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == {
        "a/b": {"ttft": 10, "errors": 0.995},
        "c": {"ttft": "none", "errors": 0.995},
        "rare": None,
    }
    assert "# ttft: 10" in result.stdout, "too few"
    file = tmp_path / "objectives.yaml"
    file.write_text(result.stdout)
    expected = Objectives.parse(["a/b=10", "c=none"], (), ["a/b=0.995", "c=0.995"])
    written = alerts("generate", "--objectives", str(file))
    assert rules_of(written.stdout) == rules_of(rule_file(objectives=expected))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("generate", "--ttft", "m=3"), "the objective of m is 3 s for the first token"),
        (("generate", "--disable", "Nope"), "there is no such alert"),
        (("generate", "--objectives", "/etc/hostname"), "expected models with some of ttft"),
        (("generate", "--objectives", "/nowhere.yaml"), "/nowhere.yaml: [Errno 2]"),
        (("suggest", "--prometheus", "http://127.0.0.1:1"), "http://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_used_is_named(arguments: tuple[str, ...], said: str) -> None:
    result = alerts(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_without_settings_the_rules_are_the_shipped_ones() -> None:
    assert rules_of(alerts("generate").stdout) == rules_of(RULE_FILE.read_text())
