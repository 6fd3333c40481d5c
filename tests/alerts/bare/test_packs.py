"""The packs as files: current, complete, and asking only for what servers have on their pages."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope_alerts.bare.__main__ import main
from kvscope_alerts.bare.limits import BOUNDS, SECONDS, Settings
from kvscope_alerts.bare.packs import alerts, pack_file
from kvscope_alerts.bare.server import SERVERS, VLLM, Server
from kvscope_alerts.objectives import PROMISED
from kvscope_alerts.timing import seconds_of
from tests.alerts.bare.pages import missing
from tests.alerts.tools import ALERTS, promtools, run
from tests.dashboards.promql import panels_of
from tests.repo.checkout import ROOT

PAGES = Path(__file__).parent / "pages"
RUNBOOKS = ALERTS / "runbooks" / "bare"
SECTIONS = ["First", "Meaning", "Impact", "Diagnosis", "Mitigation"]
both = pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)


def shipped(server: Server) -> list[Any]:
    content = yaml.safe_load((ALERTS / f"{server.word}.rules.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


@both
def test_the_committed_file_is_what_the_generator_writes(server: Server) -> None:
    path = ALERTS / f"{server.word}.rules.yml"
    assert path.read_text() == pack_file(server), "run `python -m kvscope_alerts`"


@both
def test_the_rules_ask_for_what_a_page_has(server: Server) -> None:
    assert missing(server, (PAGES / f"{server.word}.txt").read_text()) == []


@both
def test_a_page_has_no_more_than_the_rules_ask_for(server: Server) -> None:
    """So that it says what a server must export for the rules to work."""
    asked = "\n".join(rule["expr"] for rule in shipped(server))
    names = re.findall(r"^([\w:]+)\{", (PAGES / f"{server.word}.txt").read_text(), re.MULTILINE)
    assert [name for name in dict.fromkeys(names) if f"{name}{{" not in asked] == []


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("usage", "vllm:gpu_cache_usage_perc"),
        ("http_failed", 'code="5xx"'),
        ("written_only", ('mode="decode"',)),
        ("gap", "vllm:time_per_output_token_seconds"),
    ],
)
def test_what_a_page_lacks_is_found(
    field: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SECONDS, "vllm:time_per_output_token_seconds", 0.2)
    fields: dict[str, Any] = {field: wrong}
    assert missing(replace(VLLM, **fields), (PAGES / "vllm.txt").read_text())


@both
def test_an_alert_says_what_it_is(server: Server) -> None:
    for rule in (rule for rule in shipped(server) if "alert" in rule):
        assert re.fullmatch(rf"{server.prefix}[A-Z][A-Za-z0-9]+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "$value" not in str(rule["labels"]), "a new alert at every evaluation"
        assert seconds_of(rule["for"]) > 0
        annotations = rule["annotations"]
        assert "{{" not in annotations["summary"], "a templated summary breaks grouping"
        section = f"/alerts/runbooks/bare/{server.word}.md#{rule['alert'].lower()}"
        assert annotations["runbook_url"].endswith(section)
        assert ("dashboard_url" in annotations) == (server is VLLM)


@both
def test_every_selector_names_the_job(server: Server) -> None:
    """kvscope's own engine has vLLM's names as well, and everybody has http_requests_total."""
    for rule in shipped(server):
        for name, matchers in re.findall(r"\b([a-z][\w:]*)\{([^}]*)\}", rule["expr"]):
            if name == PROMISED:
                continue
            assert f'job=~"{server.word}"' in matchers, name


@both
def test_every_alert_has_a_section_in_the_runbook(server: Server) -> None:
    text = (RUNBOOKS / f"{server.word}.md").read_text()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(
        dict.fromkeys(alert.name for alert in alerts(server))
    )
    for section in text.split("\n## ")[1:]:
        assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == SECTIONS, section[:40]


def test_the_runbook_names_panels_that_the_dashboard_has() -> None:
    board = json.loads((ROOT / "dashboards" / "kvscope-vllm.json").read_text())
    titles = {panel.get("title") for panel in panels_of(board)}
    sections = (RUNBOOKS / "vllm.md").read_text().split("\n## ", 1)[1]
    text = " ".join(sections.split()).replace("**", "")
    named = re.findall(r"Panels? (.*?\*)(?=[^*,]*[.:(?])", text)
    panels = {panel for each in named for panel in re.findall(r"\*([^*]+)\*", each)}
    assert len(panels) > 8
    assert panels <= titles


def runbook_queries(server: Server) -> list[str]:
    text = (RUNBOOKS / f"{server.word}.md").read_text()
    blocks = re.findall(r"^```promql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.promtool
@both
def test_promtool_accepts_the_rules_and_the_queries_of_the_runbook(
    server: Server, tmp_path: Path
) -> None:
    queries = runbook_queries(server)
    assert queries
    rules = [{"record": f"runbook:query:{n}", "expr": query} for n, query in enumerate(queries)]
    page = tmp_path / "queries.yml"
    page.write_text(yaml.safe_dump({"groups": [{"name": "runbook", "rules": rules}]}))
    for tool in promtools():
        shipped_file = str(ALERTS / f"{server.word}.rules.yml")
        run(tool, "check", "rules", "--lint=all", "--lint-fatal", shipped_file, str(page))


@both
def test_the_document_has_a_row_for_every_alert_with_its_severity(server: Server) -> None:
    page = (ROOT / "docs" / "attach" / "bare-servers.md").read_text()
    rows = re.findall(rf"^\| \[`({server.prefix}\w+)`\]\(\S+\) \| (\w+) \|", page, re.MULTILINE)
    assert rows == list(dict.fromkeys((alert.name, alert.severity) for alert in alerts(server)))


@both
def test_default_limits_are_bounds(server: Server) -> None:
    for family in (server.first_token, server.gap):
        assert SECONDS[family] in BOUNDS[family]


def test_settings_change_job_labels_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    main(["vllm", "--job", "llm-.*", "--by", "cluster,model_name", "--ttft", "org/long=10"])
    text = capsys.readouterr().out
    rules = {
        rule.get("record", rule.get("alert")): rule
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
    }
    assert 'job=~"vllm"' not in text
    late = rules["model:vllm_first_tokens_bad:rate5m"]["expr"]
    assert "sum by (cluster, model_name)" in late
    assert 'le="2.5",model_name!="org/long"' in late
    assert 'le=~"10([.]0)?",model_name="org/long"' in late
    said = rules["VllmTtftBudgetBurns"]["annotations"]["description"]
    assert '{{ if eq $labels.model_name "org/long" }}10{{ else }}2.5{{ end }} s' in said


def test_a_limit_between_two_bounds_is_refused_with_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["sglang", "--ttft", "m=2.5"])
    message = capsys.readouterr().err
    assert "the objective of m is 2.5 s" in message
    assert "1, 2, 4" in message
    assert Settings(job="x", gap={"m": 0.3}, any_bound=True).limits(VLLM.gap) == {"m": 0.3}
    main(["sglang", "--ttft", "m=2.5", "--any-bound"])


@pytest.mark.parametrize("pair", ["llama", "llama=", "=5", "llama=soon"])
def test_what_is_no_pair_is_refused(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["vllm", "--itl", pair])
    assert "expected MODEL=SECONDS" in capsys.readouterr().err
