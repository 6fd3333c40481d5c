"""`kvscope advise URL`: its output for an answer, and one line without one."""

import json as json_
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.answers.advice import AdviceAnswer
from tests.exporter.advised import curve, facts, room, slot
from tests.support.http_peer import Answer, json, serving, text

PATH = "/api/advice"
END = 1_700_000_000.0
MINUTES = " to ".join(time.strftime("%H:%M", time.localtime(at)) for at in (END - 300, END))


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("KVSCOPE_METRICS_KEY_FILE", raising=False)


def command(*arguments: str) -> tuple[int, str]:
    """Exit status and both outputs, lines joined."""
    result = CliRunner().invoke(app, ["advise", *arguments])
    return result.exit_code, " ".join(result.output.split())


def asked(answers: dict[str, Answer], *options: str) -> tuple[int, str]:
    with serving(answers) as peer:
        code, said = command(peer.url, *options)
        return code, said.replace(peer.url, "URL")


def reply(*engines: object) -> Answer:
    document = {"question": "advice", "engines": list(engines)}
    return json(msgspec.json.encode(document).decode())


def engine(hits: float, most: float, idle: float = 3.0, **changes: object) -> dict[str, object]:
    advice = advise(facts(curve=curve(hits, most, least=0), **changes))
    return {
        "model_name": "demo",
        "engine": "0",
        "answer": AdviceAnswer(
            seconds=300.0,
            end_seconds=END,
            idle_seconds=idle,
            proposals=list(advice.proposals),
            declined=[declined.reason for declined in advice.declined],
            blocked=[each.reason for each in advice.declined if each.standing == "blocked"],
            not_judged=[each.reason for each in advice.declined if each.standing == "not known"],
        ),
    }


def test_each_proposal_is_a_block_with_its_reasons() -> None:
    code, said = asked({PATH: reply(engine(0.41, 0.6))})
    assert code == 0
    assert said.startswith(
        f"Over {MINUTES}: "
        "1. --num-gpu-blocks-override 1000 → 2187: +1,187 blocks (2.3 GiB), hits 41 → about 49 %"
    )
    assert "why: in a pool of 1,000 blocks 41 % of the blocks looked up are found" in said
    assert "confidence: high: the hits of every size are counted" in said
    assert "assumes: the load stays as it was" in said
    assert "Not proposed" not in said
    said = asked({PATH: reply(engine(0.41, 0.6))}, "--verbose")[1]
    assert "Not proposed - smaller steps" in said


def test_nothing_to_change_is_said_with_the_reasons_on_request() -> None:
    code, said = asked({PATH: reply(engine(0.6, 0.6))})
    assert code == 0
    assert said.startswith(
        f"Over {MINUTES}: No change needed. --verbose prints what was considered"
    )
    said = asked({PATH: reply(engine(0.6, 0.6))}, "--verbose")[1]
    assert "a larger pool: four times this one would save 0 of 2,000 prompt tokens" in said


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"rooms": []}, "how much memory is left is not known here."),
        ({"rooms": [room(free_bytes=0)]}, "GPU 0 has 0 B of headroom"),
    ],
)
def test_a_change_that_lacks_a_fact_or_memory_is_no_change_that_is_not_needed(
    changes: dict[str, object], missing: str
) -> None:
    code, said = asked({PATH: reply(engine(0.41, 0.6, load=slot(largest_step=0), **changes))})
    assert code == 0
    assert "Cannot recommend yet: a larger pool: four times this one would save about" in said
    assert missing in said
    assert "No change needed" not in said


def test_what_was_not_judged_is_named() -> None:
    said = asked({PATH: reply(engine(0.6, 0.6, knows_unfilled=False))})[1]
    assert "No change needed, as far as it can be judged. Not judged: smaller blocks." in said


def test_after_too_little_load_nothing_is_said_to_be_right() -> None:
    said = asked({PATH: reply(engine(0.6, 0.6, load=None, seconds=3.0))})[1]
    assert "No change needed, as far" in said or "too little is known" in said
    assert "No change needed." not in said


def test_advice_on_an_idle_engine_names_the_minutes_of_its_load() -> None:
    said = asked({PATH: reply(engine(0.41, 0.6, idle=170))})[1]
    assert said.startswith(f"Over {MINUTES}, before the engine fell idle 3 min ago: 1. --num")


def test_what_is_not_known_of_several_groups_is_said_without_being_asked() -> None:
    found = advise(facts(curve=None, is_plain=False))
    answer = AdviceAnswer(
        seconds=300.0,
        end_seconds=END,
        idle_seconds=0.0,
        proposals=[],
        declined=[],
        unknown=found.unknown,
    )
    said = asked({PATH: reply({"model_name": "m", "engine": "0", "answer": answer})})[1]
    assert "too little is known. Not advised on: a larger pool, a smaller pool, another" in said
    assert "not known for pools of several groups (sliding windows, states)." in said


@pytest.mark.parametrize("columns", range(40, 120, 3))
def test_no_line_ends_inside_a_figure(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with serving({PATH: reply(engine(0.41, 0.6))}) as peer:
        lines = CliRunner().invoke(app, ["advise", peer.url, "--verbose"]).output.splitlines()
    for line, following in pairwise(lines):
        assert not following.lstrip().startswith(("%", "GiB", "MiB", "→")), line
        assert not line.endswith("→")
        assert len(line) <= columns


def test_an_engine_of_which_nothing_is_known_says_why() -> None:
    unknown = {
        "model_name": "m",
        "engine": "1",
        "unknown": "this server does not report PoolCreated",
    }
    code, said = asked({PATH: reply(unknown, engine(0.6, 0.6))})
    assert code == 0
    assert said.startswith("m, engine 1 unknown: this server does not report PoolCreated")
    assert f"demo, engine 0 Over {MINUTES}: No change needed." in said
    assert asked({PATH: reply()})[1] == "nothing is known yet: no engine has identified itself"


def test_json_is_what_the_server_answered() -> None:
    code, said = asked({PATH: reply(engine(0.41, 0.6))}, "-o", "json")
    assert code == 0
    (first,) = json_.loads(said)["engines"]
    assert first["answer"]["proposals"][0]["option"] == "num_gpu_blocks_override"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"/metrics": text("")}, "answered 404: no kvscope, or one older than this command"),
        ({PATH: text("hello")}, "not an answer of this version of kvscope: JSON is malformed"),
        ({PATH: json('{"question": "advice"}')}, "missing required field `engines`"),
        ({PATH: json('{"question": "advice", "engines": 1}')}, "Expected `array`"),
    ],
)
def test_a_server_that_gives_no_advice_is_named(answers: dict[str, Answer], problem: str) -> None:
    code, said = asked(answers)
    assert code == 2
    assert said.startswith("kvscope: URL/api/advice: ")
    assert problem in said


def test_where_nothing_answers_it_says_what_to_check() -> None:
    with serving({}) as peer:
        url = peer.url
    code, said = command(url)
    assert code == 2
    assert "is a kvscope running there, and is this the right port?" in said
    assert command("nonsense")[0] == 2


def test_the_first_key_of_a_file_is_sent(tmp_path: Path) -> None:
    missing = tmp_path / "keys"
    code, said = asked({PATH: reply()}, "--token-file", str(missing))
    assert (code, said.endswith("cannot be read: No such file or directory")) == (2, True)
    missing.write_text("\nsecret\nother\n")
    assert asked({PATH: reply()}, "--token-file", str(missing))[0] == 0
    missing.write_text("\n")
    assert "no key in it" in asked({PATH: reply()}, "--token-file", str(missing))[1]
