"""`kvscope top --once` and `-o json`: servers, one that is gone, keys, recordings, bad calls."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.top.headline import HEADLINES
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.ring import Ring
from tests.replay.recorded import save
from tests.support.http_peer import serving, text
from tests.top.served import served
from tests.why.stage import GIB, Stage, chat, play

NOWHERE = "http://127.0.0.1:9"
LIMITS = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)
QUICK = ("--interval", "0.2")


def recorder_of(clock: Clock) -> Recorder:
    ring = Ring(LIMITS.keep_ns, None, "paced")
    return Recorder("paced", ring, LIMITS, clock=clock, compat=[], settings={})


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Two minutes as usual, then a neighbour."""
    stage = Stage(recorded_by=recorder_of)
    stage.exporter.start()
    play(stage, chat(1, 120), 120)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    play(stage, chat(2, 20), 20)
    stage.exporter.render()
    yield stage
    stage.exporter.stop()


@pytest.fixture(scope="module")
def recording(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("top") / "neighbour.kvsr"
    assert stage.recorder is not None
    save(stage.recorder, path)
    return str(path)


@pytest.fixture(scope="module")
def url(stage: Stage) -> Iterator[str]:
    with served(llama=stage.exporter) as url:
        yield url


def top(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *QUICK, *arguments], env={"COLUMNS": "80"})


def test_once_prints_verdict_pool_numbers_and_panels_as_plain_text(url: str) -> None:
    result = top(url, "--once")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("▲ 00:02:0")
    assert "\x1b" not in result.output
    assert max(map(len, lines)) <= 80
    for title in ("Preemptions", "Sequences", "What if", "Prefixes", "Tenants", "Memory", "Why"):
        assert any(line.startswith(title) for line in lines), title
    assert f"demo · engine 0 · {url} llama" in result.output


def test_json_is_one_document_with_all_keys(url: str) -> None:
    result = top(url, "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert list(document) == ["kvscope", "servers", "problems"]
    (server,) = document["servers"]
    assert list(server) == ["server", "at", "state", "engines"]
    (engine,) = server["engines"]
    assert list(engine) == [
        *("model_name", "engine", "headline", "blocks", "gpus", "answers", "unknown"),
    ]
    assert list(engine["headline"]) == [one.key for one in HEADLINES]
    assert engine["headline"]["usable_blocks"] == 700
    assert engine["headline"]["decoded_tokens_per_second"] == 0
    # No request was looked up between the two readings.
    assert engine["headline"]["hit_ratio"] is None
    assert sum(engine["blocks"].values()) == 700
    assert engine["answers"]["why"]["chain"][0]["kind"] == "neighbour"
    assert engine["answers"]["sequences"]["sequences"] == []
    assert engine["unknown"] == {}


def test_a_server_that_is_gone_is_named_beside_the_others(url: str) -> None:
    result = top(url, NOWHERE, "--once")
    assert result.exit_code == 2
    assert "demo · engine 0" in result.stdout
    assert f"{NOWHERE}/targets: Connection refused; is a kvscope" in result.stderr
    document = json.loads(top(NOWHERE, "-o", "json").stdout)
    assert document["servers"] == []
    assert document["problems"][0]["place"] == NOWHERE


def test_a_missing_key_names_the_option(stage: Stage, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-some-length\n")
    with served("a-key-of-some-length", llama=stage.exporter) as url:
        refused = top(url, "--once")
        assert refused.exit_code == 2
        assert "it wants a token: --token-file FILE" in refused.stderr
        let_in = top(url, "--once", "--token-file", str(keys))
        assert let_in.exit_code == 0, let_in.output


def test_a_sidecar_shows_all_its_servers_or_one(stage: Stage) -> None:
    with served(llama=stage.exporter, qwen=stage.exporter) as url:
        document = json.loads(top(url, "-o", "json").stdout)
        assert [each["server"] for each in document["servers"]] == [f"{url} llama", f"{url} qwen"]
        one = json.loads(top(url, "-o", "json", "--target", "qwen").stdout)
        assert [each["server"] for each in one["servers"]] == [f"{url} qwen"]
        wrong = top(url, "--once", "--target", "gemma")
        assert wrong.exit_code == 2
        assert "no server 'gemma' here; known: llama, qwen" in wrong.stderr


def test_another_server_than_kvscope_is_named_as_such() -> None:
    with serving({}) as peer:
        result = top(peer.url, "--once")
    assert result.exit_code == 2
    assert "no kvscope, or one older than this command" in result.stderr


def test_an_older_kvscope_has_its_page_and_says_what_it_lacks() -> None:
    page = 'kvscope_kv_active_ratio{engine="0",model_name="m"} 0.25\n'
    with serving({"/metrics": text(page)}) as peer:
        document = json.loads(top(peer.url, "-o", "json").stdout)
    (engine,) = document["servers"][0]["engines"]
    assert engine["headline"]["active_ratio"] == 0.25
    assert engine["headline"]["waiting"] is None
    assert engine["answers"] == {}
    assert "older than this command" in engine["unknown"]["why"]


def test_a_recording_is_shown_at_its_end_or_at_a_moment(recording: str) -> None:
    result = top(recording, "--once", "--interval", "2")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("▲ 00:02:0")
    assert re.search(r"00:02:\d\d UTC, at 100 %, paused", result.output)
    before = top(recording, "--once", "--at", "+100s", "--interval", "2")
    assert before.output.startswith("✔ Nothing is wrong")
    document = json.loads(top(recording, "-o", "json", "--at", "+100s", "--interval", "2").stdout)
    headline = document["servers"][0]["engines"][0]["headline"]
    assert headline["decoded_tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nonexistent.kvsr", "--once"], "/nonexistent.kvsr: cannot be read: No such"),
        ([NOWHERE, "--at", "+1s"], "--at is for recordings"),
        (["a.kvsr", "b.kvsr"], "a recording is shown alone"),
        ([NOWHERE], "standard output is not a terminal: use --once or -o json"),
    ],
)
def test_what_cannot_be_shown_is_one_line(arguments: list[str], message: str) -> None:
    result = top(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_moment_outside_the_recording_is_one_line(recording: str) -> None:
    result = top(recording, "--once", "--at", "+9h")
    assert result.exit_code == 2
    assert result.stderr.startswith("kvscope: --at: ")


def test_without_textual_only_the_screen_is_missing(url: str) -> None:
    program = (
        "import sys; sys.modules['textual'] = None; sys.stdin.isatty = sys.stdout.isatty = "
        "lambda: True; from kvscope.cli.app import main; main()"
    )
    command = [sys.executable, "-c", program, "top", url, "--interval", "0.2"]
    screen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert screen.returncode == 2
    assert "pip install '.[top]'" in screen.stderr
    once = subprocess.run([*command, "--once"], capture_output=True, text=True, check=False)
    assert once.returncode == 0, once.stderr
