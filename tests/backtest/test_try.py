"""`kvscope alerts backtest`: what would have fired, from recordings and from a Prometheus."""

import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.backtest import BacktestError
from kvscope.backtest.evaluation import Firing, Rules, _answers, evaluate
from kvscope.backtest.inhibition import held_back, inhibition_rules
from kvscope.backtest.samples import Samples
from kvscope.cli.app import app
from tests.alerts import failures
from tests.alerts.timeline import STEP_SECONDS, Situation, firing
from tests.alerts.tools import RULE_FILE, promtools
from tests.diff.test_diff import make_recorder
from tests.replay.recorded import save
from tests.support.http_peer import json, serving
from tests.support.prometheus import prometheus_with
from tests.why.stage import Stage, chat

SECONDS = 330


def attempt(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["alerts", "backtest", *arguments])


def fired(*arguments: str) -> list[Any]:
    result = attempt(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    (trial,) = msgspec.json.decode(result.stdout)
    fired: list[Any] = trial["fired"]
    return fired


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An engine whose pool is too small for its load, in simulated time after midnight of 1970."""
    stage = Stage(recorded_by=make_recorder, num_blocks=90)
    stage.exporter.start()
    stage.play(chat(1, SECONDS, rate=2.2), SECONDS)
    stage.exporter.render()
    stage.exporter.stop()
    assert stage.recorder is not None
    path = tmp_path_factory.mktemp("tried") / "small.kvsr"
    save(stage.recorder, path)
    return str(path)


@pytest.mark.promtool
@pytest.mark.nightly
def test_another_objective_pages_where_the_shipped_one_does_not(recording: str) -> None:
    page = "KvscopeTtftBudgetBurns"
    assert page not in [each["alert"] for each in fired(recording)]
    (paged,) = (e for e in fired(recording, "--ttft", "demo=0.5") if e["alert"] == page)
    assert (paged["severity"], paged["firings"], paged["at_night"]) == ("critical", 1, 1)
    # In Tokyo it was nine in the morning.
    result = attempt(recording, "--ttft", "demo=0.5", "--timezone", "Asia/Tokyo")
    assert f"{page:<34}critical       1          0         0  1970-01-01 09:0" in result.output
    assert "1 of them critical" in result.output
    assert "Too short for: " in result.output
    assert "KvscopeBudgetBurnsSlowly" in result.output.split("Too short for: ")[1]


def openmetrics(situation: Situation, begins: int) -> str:
    """The samples of a situation with their times."""
    families: dict[str, list[str]] = {}
    for key, values in situation.series.items():
        lines = families.setdefault(key.partition("{")[0], [])
        for step, value in enumerate(values):
            if value is not None:
                lines.append(f"{key} {value:.10g} {begins + step * STEP_SECONDS}")
    return "\n".join([line for lines in families.values() for line in lines]) + "\n# EOF\n"


@pytest.mark.promtool
@pytest.mark.prometheus
@pytest.mark.nightly
def test_a_prometheus_is_asked_for_what_fired(tmp_path: Path) -> None:
    """The same alerts at the same minutes as from the series themselves."""
    situation = failures.full_pools()
    tool = promtools()[0]
    (changes,) = firing(tmp_path, [situation], tool).values()
    begins = int(time.time()) // 60 * 60 - situation.minutes * 60
    (tmp_path / "past.om").write_text(openmetrics(situation, begins))
    command = [tool, "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    subprocess.run([*command, str(tmp_path / "past.om"), str(tmp_path / "data")], check=True)
    options = ("--query.lookback-delta=90s",)  # blocks made of text have no marks of staleness
    with prometheus_with("scrape_configs: []\n", tmp_path, *options) as running:
        days = situation.minutes / 1440
        found = fired("--prometheus", running.url, "--last", f"{days}d", "--only", "cluster=pool")
        nothing = attempt("--prometheus", running.url, "--last", "0.1d", "--only", "cluster=no")
    assert (nothing.exit_code, nothing.output.count("\n")) == (2, 1)
    assert 'no series of kvscope with cluster="no" in that time' in nothing.stderr
    first: dict[tuple[str, str], int] = {}
    for seconds, alerts in changes:
        for labels in map(dict, alerts):
            first.setdefault((labels["alertname"], labels["severity"]), begins + seconds)
    assert first
    assert {(each["alert"], each["severity"]): each["first"] for each in found} == first


@pytest.mark.promtool
def test_a_series_that_ends_is_gone_at_once(tmp_path: Path) -> None:
    samples = Samples(source="here", begins=1_000_000, step=60, count=4)
    for index, value in ((0, 1.0), (1, 2.0), (3, 5.5)):
        samples.put("up", {"job": 'a"b\\'}, index, value)
    samples.put("process_start_time_seconds", {}, 0, 999_000)
    assert [each["values"] for each in samples.inputs()] == ["1 2 stale 5.5", "-1000 stale _ _"]
    rules = Rules(
        "groups: [{name: x, rules: [{alert: Up, expr: 'up > 1', labels: {severity: info}}]}]"
    )
    firings = evaluate(rules, samples, promtools()[0])
    assert [(f.since, f.until, dict(f.labels)["job"]) for f in firings] == [
        (1_000_060, 1_000_120, 'a\\"b\\\\'),
        (1_000_180, 1_000_180, 'a\\"b\\\\'),
    ]


def test_every_metric_of_the_shipped_rules_is_asked_for() -> None:
    names = Rules(RULE_FILE.read_text()).names
    assert {"up", "kvscope_kv_active_ratio", "kvscope_gpu_xid_last_age_seconds"} <= names
    assert "kvscope_time_to_first_token_seconds_bucket" in names
    assert not [name for name in names if ":" in name]


def test_labels_may_contain_braces_and_quotes() -> None:
    said = 'time: 1m30s,\n exp: nil\n got: {__name__="ALERTS", a="}\\"{", b="c"} 1E+00'
    assert dict(_answers(said)) == {90: {(("__name__", "ALERTS"), ("a", '}\\"{'), ("b", "c"))}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give recordings or --prometheus URL, one of both"),
        (["x.kvsr", "--prometheus", "http://127.0.0.1:9"], "one of both"),
        (["x.kvsr", "--ttft", "demo=0.3"], "which some servers' histograms have no bound near"),
        (["x.kvsr", "--timezone", "Mars"], "--timezone 'Mars': no such zone"),
    ],
)
def test_what_cannot_be_tried_is_one_line(arguments: list[str], message: str) -> None:
    result = attempt(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nonexistent.kvsr"], "/nonexistent.kvsr: cannot be read"),
        (["--prometheus", "http://127.0.0.1:9"], "http://127.0.0.1:9/api/v1/query_range: "),
        (["--prometheus", "http://127.0.0.1:9", "--only", "x"], "--only 'x': expected NAME=VALUE"),
    ],
)
def test_a_past_that_cannot_be_read_is_one_line(arguments: list[str], message: str) -> None:
    test_what_cannot_be_tried_is_one_line(arguments, message)


@pytest.mark.promtool
def test_another_page_than_that_of_a_prometheus_is_named() -> None:
    with serving({"/api/v1/query_range": json('{"data":[]}')}) as peer:
        result = attempt("--prometheus", peer.url)
    assert result.exit_code == 2
    assert "not an answer of a Prometheus" in result.stderr


def test_a_missing_promtool_is_named_with_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = attempt("incident.kvsr")
    assert result.exit_code == 2
    assert "promtool is not on PATH: it is in Debian's package prometheus" in result.stderr


MATCHED = r"""
inhibit_rules:
  - source_matchers: [alertname = Dead, '{severity=~"crit.*", zone!="a\"b"}']
    target_match_re: {alertname: "Late|Dead"}
    equal: [instance, cluster]
"""


def firing_of(since: int, until: int, **labels: str) -> Firing:
    return Firing(tuple(sorted(labels.items())), since * 60, until * 60)


def test_an_alert_is_held_back_while_its_source_fires_with_equal_labels(tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text(MATCHED)
    rules = inhibition_rules(tmp_path / "alertmanager.yml")
    dead = firing_of(5, 20, alertname="Dead", severity="critical", instance="1")
    late = firing_of(5, 20, alertname="Late", instance="1")
    others = [
        firing_of(5, 20, alertname="Late", instance="2"),
        firing_of(4, 20, alertname="Late", instance="1"),  # a message came before its source
        firing_of(5, 21, alertname="Late", instance="1"),
        firing_of(5, 20, alertname="Slow", instance="1"),
    ]
    assert held_back([dead, late, *others], rules) == {late}
    warning = firing_of(5, 20, alertname="Dead", severity="warning", instance="1")
    elsewhere = firing_of(5, 20, alertname="Dead", severity="critical", instance="1", zone='a"b')
    assert held_back([warning, late], rules) == held_back([elsewhere, late], rules) == set()
    # Both are source and target: neither holds the other back.
    twin = firing_of(5, 20, alertname="Dead", severity="critical", instance="1", engine="1")
    assert held_back([dead, twin], rules) == set()


@pytest.mark.parametrize(
    "text", ["[]", "inhibit_rules: 3", "inhibit_rules: [{source_matchers: ['a~b']}]", "a: : b"]
)
def test_another_file_than_alertmanagers_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.yml").write_text(text)
    with pytest.raises(BacktestError, match="not an Alertmanager's configuration") as raised:
        inhibition_rules(tmp_path / "other.yml")
    assert "\n" not in str(raised.value)
