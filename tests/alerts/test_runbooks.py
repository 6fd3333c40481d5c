"""Every alert has a runbook: six sections, queries of one server, panels that exist, prices."""

import json
import re
from pathlib import Path

import pytest
import yaml

from kvscope.cli.app import every_command
from kvscope_alerts.rules import alerts
from tests.alerts.cases import FILES, cases_of
from tests.alerts.runbook_commands import (
    ANYWHERE,
    OF_ALERTS,
    ON_THE_HOST,
    PAGES,
    WITH_KVSCOPE,
    Command,
    Effect,
    blocks,
    commands,
    queries,
    spans,
)
from tests.alerts.tools import ALERTS, RULE_FILE, known_names, names_in, promtools, run
from tests.repo.checkout import ROOT, python_files

SECTIONS = [
    "First, stop the bleeding",
    *("Meaning", "Impact", "Diagnosis", "Mitigation"),
    "Silence",
]
LONGEST = 80
"""Lines: a page that is read at night."""
README = ALERTS / "runbooks" / "README.md"
RECORDED = {
    rule["record"]
    for group in yaml.safe_load(RULE_FILE.read_text())["groups"]
    for rule in group["rules"]
    if "record" in rule
}


def stem(path: Path) -> str:
    return path.stem


def section(path: Path, title: str) -> str:
    return path.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


each_runbook = pytest.mark.parametrize("path", OF_ALERTS, ids=stem)
each_page = pytest.mark.parametrize("path", PAGES, ids=stem)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in OF_ALERTS} == {alert.name for alert in alerts()}


@each_runbook
def test_a_runbook_is_complete(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= LONGEST
    assert queries(path), "nothing to paste"
    for query in queries(path):
        assert names_in(query) <= known_names() | RECORDED, query


@each_runbook
def test_what_stops_the_bleeding_can_be_pasted(path: Path) -> None:
    """Without following a link first. The watchdog is about no server of ours."""
    first = section(path, SECTIONS[0])
    assert "```sh\n" in first


@each_runbook
def test_a_runbook_says_how_to_silence_its_alert_and_no_other(path: Path) -> None:
    silences = [c.text for c in commands(path) if " silence add " in c.text]
    if path.stem == "KvscopeWatchdog":
        assert not silences, "it switches the dead man's switch off"
        return
    assert len(silences) == 1
    assert re.search(
        rf"add alertname={path.stem} (instance|model_name|uuid|namespace|job)=[\w-]+ "
        r"--duration=\d+[hd] --comment='WHY'$",
        silences[0],
    ), silences


LABELS: dict[str, set[str]] = {}
"""Labels of each alert, as its cases expect it to fire."""
for cases in FILES:
    for case in cases_of(cases):
        for alert in case.alerts:
            LABELS.setdefault(alert.name, set()).update(alert.labels)


@each_runbook
def test_a_silence_matches_a_label_that_the_alert_has(path: Path) -> None:
    """Otherwise it silences nothing."""
    for command in commands(path):
        if " silence add " in command.text:
            name, label = re.findall(r"alertname=(\w+) (\w+)=", command.text)[0]
            assert label in LABELS[name], LABELS[name]


@each_runbook
def test_the_queries_of_a_runbook_ask_for_what_the_alert_names(path: Path) -> None:
    """On a fleet a query without a matcher answers with hundreds of rows."""
    asked = queries(path)
    narrow = [q for q in asked if re.search(r'="(INSTANCE|MODEL|NAMESPACE)"', q)]
    about_prometheus = {"KvscopeTargetAbsent", "KvscopeWatchdog"}
    if path.stem not in about_prometheus:
        assert len(narrow) >= len(asked) / 2, set(asked) - set(narrow)


@each_runbook
def test_a_runbook_names_panels_that_exist(path: Path) -> None:
    boards = {}
    for board in (ROOT / "dashboards").glob("*.json"):
        content = json.loads(board.read_text())
        panels = [p for row in content["panels"] for p in (row, *row.get("panels", ()))]
        boards[content["title"]] = {panel.get("title") for panel in panels}
    # A name may go over the end of a line; two blanks in a title are one in a text.
    text = re.sub(r"\s+", " ", section(path, "Diagnosis"))
    named = re.findall(r"\*\*(kvscope / [^*]+)\*\*([^.]*)", text)
    assert named, "no panel to open"
    for title, rest in named:
        assert title in boards
        meant = set(re.findall(r"\*([^*]+)\*", rest.split("**")[0]))
        assert meant
        missing = meant - {re.sub(r" +", " ", p or "") for p in boards[title]}
        assert not missing, f"{title} has no {missing}"


@pytest.mark.promtool
def test_queries_of_the_runbooks_parse(tmp_path: Path) -> None:
    rules = [
        {"record": f"runbook:query:{number}", "expr": query}
        for number, query in enumerate(query for path in OF_ALERTS for query in queries(path))
    ]
    page = tmp_path / "queries.yml"
    page.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    for tool in promtools():
        run(tool, "check", "rules", str(page))


RAISE = re.compile(r"\*\*raise\*\*", re.IGNORECASE)
LOWER = re.compile(
    r"\*\*lower\*\*\s+`--(gpu-memory-utilization|max-num-batched-tokens)", re.IGNORECASE
)


def test_a_pool_that_is_too_small_is_made_larger_and_a_full_device_gets_a_smaller_one() -> None:
    pool, device = (
        section(ALERTS / "runbooks" / f"Kvscope{name}.md", "Mitigation")
        for name in ("PreemptionStorm", "DeviceMemoryTight")
    )
    assert RAISE.search(pool)
    assert not LOWER.search(pool)
    assert LOWER.search(device)
    assert not RAISE.search(device)


@each_page
def test_whoever_drains_is_told_how_to_find_what_selects_the_pod(path: Path) -> None:
    """The label of our overlays drains no other pods."""
    typed = [command.text for command in commands(path)]
    for number, text in enumerate(typed):
        if " label pod " in text:
            found = typed[number - 1]
            assert found.startswith("kubectl -n NAMESPACE get "), text


@each_page
def test_every_block_says_what_it_is_for(path: Path) -> None:
    assert {language for language, _ in blocks(path)} <= {"sh", "promql"}


@each_page
def test_a_command_that_changes_something_says_what_it_loses(path: Path) -> None:
    for command in commands(path):
        assert command.effect is not None, f"{command.text}: what does it do to the server?"
        if command.own_engine_only:
            continue  # what it does to the other kind is said instead
        assert command.loses == (command.effect is not Effect.READS), command
        if command.effect is Effect.ENDS:
            assert "loses nothing" not in command.comment, command


@each_page
def test_a_signal_is_for_our_own_engine_and_says_what_it_does_to_a_vllm(path: Path) -> None:
    for command in commands(path):
        if command.program == "kill":
            assert command.own_engine_only
            assert "end a vLLM" in command.comment
    for span in spans(path):
        assert not re.match(r"(docker (compose )?|systemctl )?kill .", span), span


@each_page
def test_what_changes_something_stands_in_a_block(path: Path) -> None:
    """With its price behind it, not in a sentence to be copied out of."""
    for span in spans(path):
        command = Command(span)
        if command.program in ANYWHERE | ON_THE_HOST | WITH_KVSCOPE and re.search(
            r"\b[A-Z]{3,}\b", span
        ):
            assert command.effect is Effect.READS, span


def test_the_page_that_explains_the_others_says_where_each_program_runs() -> None:
    text = README.read_text()
    for programs, place in ((ANYWHERE, "where you are"), (ON_THE_HOST, "on the host")):
        sentence = next(s for s in re.split(r"[.;]\n|;\s(?=`kvscope`)", text) if place in s)
        used = {c.program for path in PAGES for c in commands(path)} & programs
        assert used <= set(re.findall(r"`([\w-]+)`", sentence)), place


def test_every_placeholder_is_explained() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", README.read_text(), re.MULTILINE)
    explained = {word for row in rows for word in re.findall(r"`([A-Z]+)[`:]", row)}
    used = {
        word
        for path in PAGES
        for command in commands(path)
        for word in re.findall(r"(?<![-A-Za-z{])\b[A-Z]{1,}[A-Z]*\b(?![a-z])", command.text)
        if word not in WORDS
    }
    assert used <= explained | {"IMAGE", "CLIENT"}, used - explained  # said where they are used


WORDS = {
    *("POST", "USR1", "KILL", "ROW_REMAPPER", "PERFORMANCE", "TEMPERATURE", "POWER"),
    *("G", "X", "K"),
}


SOURCES = [
    path
    for package in ("exporter", "engine", "alerts", "kvscope")
    for path in python_files(package)
]
CODE = "\n".join(path.read_text() for path in SOURCES)
OF_VLLM = {
    *("--shutdown-timeout", "--scheduling-policy"),
    *("--prefix-cache-retention-interval", "--mamba-block-size", "--mamba-cache-mode"),
    *("--api-server-count", "--renderer-num-workers"),
}
"""Options of vLLM alone; a test with a vLLM asks for them."""
OF_SGLANG = {
    *("--enable-priority-scheduling", "--retraction-policy", "--radix-eviction-policy"),
    *("--enable-hierarchical-cache", "--hicache-size", "--max-queued-requests"),
}
"""Options of SGLang alone; a test with an SGLang asks for them."""


@each_page
def test_a_runbook_names_commands_and_options_that_exist(path: Path) -> None:
    ours = every_command().keys()
    for text in [*spans(path), *(command.text for command in commands(path))]:
        program, *rest = text.split(" ")
        if program == "kvscope" and rest:
            assert rest[0] in ours or " ".join(rest[:2]) in ours, text
        elif rest and re.fullmatch(r"[a-z][a-z-]+", program) and "==" not in text:
            assert program in ANYWHERE | ON_THE_HOST | {"set"}, text
        if path in OF_ALERTS:
            for flag in re.findall(r"--[a-z-]+", text) if program.startswith("--") else ():
                found = f'"{flag}"' in CODE or flag.removeprefix("--").replace("-", "_") in CODE
                assert found or flag in OF_VLLM | OF_SGLANG, text
        for answer in re.findall(r"/api/([a-z]+)$", text):
            assert f'"{answer}"' in CODE or f"/api/{answer}" in CODE, text


DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"])


@pytest.mark.parametrize("path", DOCUMENTS, ids=stem)
def test_a_document_that_sends_a_signal_says_what_it_does_to_a_vllm(path: Path) -> None:
    for paragraph in path.read_text().split("\n\n"):
        if re.search(r"kill (-s )?-?(SIG)?(USR[12]|RTMIN)", paragraph):
            assert re.search(r"vLLM[^.]*\b(ended|ends)\b", re.sub(r"\s+", " ", paragraph)), (
                paragraph
            )
