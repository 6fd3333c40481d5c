"""Every alert has a runbook: four sections, queries that parse, panels that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from alerts.rules import alerts
from exporter.cli.app import app
from tests.alerts.tools import ALERTS, RULE_FILE, known_names, names_in, promtools, run
from tests.repo.checkout import ROOT, python_files

RUNBOOKS = sorted((ALERTS / "runbooks").glob("*.md"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
RECORDED = {
    rule["record"]
    for group in yaml.safe_load(RULE_FILE.read_text())["groups"]
    for rule in group["rules"]
    if "record" in rule
}


def stem(path: Path) -> str:
    return path.stem


def queries(path: Path) -> list[str]:
    blocks = re.findall(r"^ *```promql\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def section(path: Path, title: str) -> str:
    return path.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS} == {alert.name for alert in alerts()}


@pytest.mark.parametrize("path", RUNBOOKS, ids=stem)
def test_a_runbook_is_complete(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [title for title in titles if title in SECTIONS] == SECTIONS
    assert queries(path), "nothing to paste"
    for query in queries(path):
        assert names_in(query) <= known_names() | RECORDED, query


@pytest.mark.parametrize("path", RUNBOOKS, ids=stem)
def test_a_runbook_names_panels_that_exist(path: Path) -> None:
    boards = {}
    for board in (ROOT / "dashboards").glob("*.json"):
        content = json.loads(board.read_text())
        boards[content["title"]] = {panel.get("title") for panel in content["panels"]}
    named = re.findall(r"\*\*(kvscope / [^*]+)\*\*([^.]*)", section(path, "Diagnosis"))
    assert named, "no panel to open"
    for title, rest in named:
        assert title in boards
        rest = rest.split("**")[0].replace("\n", " ")
        panels = {re.sub(r" +", " ", p) for p in re.findall(r"\*([^*]+)\*", rest)}
        assert panels
        missing = panels - {re.sub(r" +", " ", p or "") for p in boards[title]}
        assert not missing, f"{title} has no {missing}"


@pytest.mark.promtool
def test_queries_of_the_runbooks_parse(tmp_path: Path) -> None:
    rules = [
        {"record": f"runbook:query:{number}", "expr": query}
        for number, query in enumerate(query for path in RUNBOOKS for query in queries(path))
    ]
    page = tmp_path / "queries.yml"
    page.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    for tool in promtools():
        run(tool, "check", "rules", str(page))


RAISE = re.compile(r"\*\*raise\*\*", re.IGNORECASE)
LOWER = re.compile(
    r"\*\*lower\*\*\s+`--(gpu-memory-utilization|max-num-batched-tokens)", re.IGNORECASE
)


@pytest.mark.parametrize("name", ["KvPoolSaturated", "KvExhaustionImminent", "PreemptionStorm"])
def test_a_pool_that_is_too_small_is_made_larger(name: str) -> None:
    advice = section(ALERTS / "runbooks" / f"Kvscope{name}.md", "Mitigation")
    assert RAISE.search(advice)
    assert not LOWER.search(advice)


@pytest.mark.parametrize(
    "name", ["DeviceOom", "DeviceOomRisk", "DeviceOomRetried", "DeviceAllocationRetries"]
)
def test_a_device_that_is_full_gets_a_smaller_pool_or_smaller_steps(name: str) -> None:
    advice = section(ALERTS / "runbooks" / f"Kvscope{name}.md", "Mitigation")
    assert LOWER.search(advice)
    assert not RAISE.search(advice)


PROGRAMS = {
    *("amtool", "curl", "dmesg", "docker", "journalctl", "kill", "kubectl", "kvscope", "lspci"),
    *("nvidia-smi", "python", "systemctl"),
}
"""What a runbook may ask for: ours, what is where the server runs, what is on one's own machine."""
SOURCES = [path for package in ("exporter", "engine", "alerts") for path in python_files(package)]
CODE = "\n".join(path.read_text() for path in SOURCES)


def spans(path: Path) -> list[str]:
    """Inline code, and lines of blocks that are no queries."""
    text = re.sub(r"^ *```promql\n.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", text)]
    return inline + [line.strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("path", RUNBOOKS, ids=stem)
def test_a_runbook_names_commands_that_exist(path: Path) -> None:
    commands = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    for span in spans(path):
        program, *rest = span.split(" ")
        if rest and re.fullmatch(r"[a-z][a-z-]+", program) and "==" not in span:
            assert program in PROGRAMS, span
            assert program != "kvscope" or rest[0] in commands, span
        for flag in re.findall(r"--[a-z-]+", span) if program.startswith("--") else ():
            assert f'"{flag}"' in CODE or flag.removeprefix("--").replace("-", "_") in CODE, span
        for answer in re.findall(r"/api/([a-z]+)$", span):
            assert f'"{answer}"' in CODE or f"/api/{answer}" in CODE, span
