"""`kvscope diff`: what was changed comes first; the same load again brings no surprise."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.answers.course import COURSE
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.ring import Ring
from tests.replay.recorded import save
from tests.support.http_peer import json, serving
from tests.support.paced import Call
from tests.why.stage import Stage, chat

SECONDS = 120
HW_THERMAL = 0x40
Record = Callable[..., str]


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diff", *arguments])


def compared(*arguments: str) -> Any:
    result = diff(*arguments, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    document = msgspec.json.decode(result.stdout)
    assert document["different"] is bool(result.exit_code)
    (engine,) = document["engines"]
    return engine


def make_recorder(clock: Clock) -> Recorder:
    limits = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)
    ring = Ring(limits.keep_ns, None, "paced")
    return Recorder("paced", ring, limits, clock=clock, compat=[], settings={})


def dated(calls: Iterable[Call]) -> list[Call]:
    """The same requests behind something that is new in each, as a template with the time."""
    return [
        replace(call, prompt=[number % 97 + 7] * 3 + call.prompt)
        for number, call in enumerate(calls)
    ]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Records an engine under a load; the same arguments give the same file."""
    folder, known = tmp_path_factory.mktemp("sides"), dict[str, str]()

    def recorded(
        name: str,
        calls: Iterable[Call],
        seconds: float = SECONDS,
        slow: bool = False,
        **settings: int,
    ) -> str:
        if name in known:
            return known[name]
        stage = Stage(recorded_by=make_recorder, **settings)  # type: ignore[arg-type]
        if slow:
            stage.step_ns, stage.token_ns = 3 * stage.step_ns, 3 * stage.token_ns
            stage.gpu.slowed = HW_THERMAL
        stage.exporter.start()
        stage.play(calls, seconds)
        stage.exporter.render()
        stage.exporter.stop()
        assert stage.recorder is not None
        save(stage.recorder, folder / f"{name}.kvsr")
        known[name] = str(folder / f"{name}.kvsr")
        return known[name]

    return recorded


@pytest.fixture
def usual(record: Record) -> str:
    return record("usual", chat(1, SECONDS))


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_the_same_load_again_brings_no_surprise(usual: str, record: Record, seed: int) -> None:
    again = record(f"again{seed}", chat(seed, SECONDS))
    found = compared(usual, again)
    assert found["settings"] == []
    assert [each["name"] for each in found["figures"] if each["surprise"] >= 4] == []
    result = diff(usual, again)
    assert result.exit_code == 0
    assert "Nothing differs beyond its own variation." in result.output


def test_a_smaller_pool_comes_first(usual: str, record: Record) -> None:
    found = compared(usual, record("small", chat(2, SECONDS), num_blocks=90))
    assert found["settings"] == [{"name": "usable_blocks", "a": 700, "b": 90}]
    assert found["figures"][0]["topic"] in ("cache", "bill", "pool")
    assert found["figures"][0]["surprise"] > 4


def test_a_changed_template_comes_first(usual: str, record: Record) -> None:
    found = compared(usual, record("dated", dated(chat(2, SECONDS))))
    assert found["settings"] == []
    assert found["figures"][0]["name"] == "hit_share"
    assert found["figures"][0]["b"] == 0.0


@pytest.mark.nightly
def test_a_slower_clock_comes_first(usual: str, record: Record) -> None:
    result = diff(usual, record("slow", chat(2, SECONDS), slow=True))
    assert result.exit_code == 1
    heads = [line for line in result.output.splitlines() if line.startswith("  ")]
    assert " ".join(heads[0].split()[:-1]) == "time with clocks of GPU held down 0.0 % 100.0 %"
    assert any(line.startswith("  time of a step for the same work") for line in heads)


@pytest.mark.nightly
def test_two_stretches_of_one_recording(record: Record) -> None:
    calls = [*chat(1, 120), *(replace(call, at=call.at + 120) for call in chat(2, 120, rate=6))]
    path = record("rising", calls, seconds=240)
    found = compared(path, path, "--at-a", "+115s", "--last", "110")
    assert found["figures"][0]["topic"] in ("load", "pool")
    assert "requests_per_second" in {
        each["name"] for each in found["figures"] if each["surprise"] >= 4
    }


def test_a_server_is_compared_with_a_recording(usual: str) -> None:
    stage = Stage(num_blocks=700)
    stage.play(chat(2, SECONDS), SECONDS)
    body = msgspec.json.encode(stage.exporter.answer(COURSE)).decode()
    with serving({"/api/course": json(body)}) as peer:
        found = compared(usual, peer.url)
    assert (found["a"]["source"], found["b"]["source"]) == (usual, peer.url)
    assert found["settings"] == []


def test_what_one_side_does_not_report_is_not_compared_with_0(usual: str) -> None:
    """A server that reports no preemptions and no first tokens, and has no GPU that is read."""
    stage = Stage()
    stage.play(chat(2, SECONDS), SECONDS)
    document = msgspec.json.decode(msgspec.json.encode(stage.exporter.answer(COURSE)))
    answer = document["engines"][0]["answer"]
    unreported = {"RequestPreempted", "FirstToken"}
    answer["reported"] = [name for name in answer["reported"] if name not in unreported]
    answer["misses_known"], answer["gpus"] = False, []
    del answer["facts"]["max_model_len"]
    with serving({"/api/course": json(msgspec.json.encode(document).decode())}) as peer:
        found = compared(usual, peer.url)
        printed = diff(usual, peer.url).output
    assert found["settings"] == [{"name": "max_model_len", "a": 4096, "b": None}]
    assert "not reported" in printed
    figures = {each["name"] for each in found["figures"]}
    assert not {"preemptions_per_sequence", "first_token_seconds_p95"} & figures
    assert {"preemptions_per_sequence", "first_token_seconds_p95", "missed_cold_share"} <= {
        each["name"] for each in found["only_a"]
    }
    assert found["only_b"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{usual}", "/nonexistent.kvsr"], "/nonexistent.kvsr: cannot be read: No such file"),
        (["{usual}", "{usual}", "--at-a", "+20s"], "A: {usual}: only 10 s are known"),
        (["{usual}", "{usual}", "--at-b", "noon"], "--at-b: 'noon' is not a time: expected"),
        (["{usual}", "http://127.0.0.1:9", "--at-b", "03:00"], "--at-b: http://127.0.0.1:9 is a"),
        (["{usual}", "{usual}", "--target-a", "qwen"], "--target-a qwen: {usual} is a recording"),
        (["{usual}", "http://127.0.0.1:9"], "http://127.0.0.1:9/api/course: "),
    ],
)
def test_a_side_that_cannot_be_compared_is_one_line(
    usual: str, arguments: list[str], message: str
) -> None:
    result = diff(*(argument.format(usual=usual) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert message.format(usual=usual) in result.stderr
    assert len(result.stderr.splitlines()) == 1
