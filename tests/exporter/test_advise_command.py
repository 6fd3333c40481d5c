"""`kvscope advise URL`: what it prints of an answer, and one line where there is none."""

import json as json_
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from exporter.adviser.rank import advise
from exporter.answers.advice import AdviceAnswer
from exporter.cli.app import app
from tests.exporter.test_adviser import curve, facts
from tests.support.http_peer import Answer, json, serving, text

PATH = "/api/advice"


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


def engine(hits: float, most: float) -> dict[str, object]:
    advice = advise(facts(curve=curve(hits, most, least=0)))
    return {
        "model_name": "demo",
        "engine": "0",
        "answer": AdviceAnswer(
            seconds=300.0,
            proposals=list(advice.proposals),
            declined=[declined.reason for declined in advice.declined],
        ),
    }


def test_each_proposal_is_a_block_with_its_reasons() -> None:
    code, said = asked({PATH: reply(engine(0.41, 0.6))})
    assert code == 0
    assert said.startswith(
        "1. --num-gpu-blocks-override 1000 → 2187: +1,187 blocks (2.3 GiB), hits 41 → 49 %"
    )
    assert "why: in a pool of 1,000 blocks 41 % of the blocks looked up are found" in said
    assert "confidence: high: the hits are counted exactly" in said
    assert "assumes: the load stays as it was" in said
    assert "Not proposed - smaller steps" in said


def test_nothing_to_change_is_said_with_the_reasons() -> None:
    code, said = asked({PATH: reply(engine(0.6, 0.6))})
    assert code == 0
    assert said.startswith("nothing to change: 300 s were observed, and this is not proposed")
    assert "a larger pool: four times this one would save 0 of 2,000 prompt tokens" in said


def test_an_engine_of_which_nothing_is_known_says_why() -> None:
    unknown = {"model_name": "m", "engine": "1", "unknown": "this server does not tell PoolCreated"}
    code, said = asked({PATH: reply(unknown, engine(0.6, 0.6))})
    assert code == 0
    assert said.startswith("m, engine 1 unknown: this server does not tell PoolCreated")
    assert "demo, engine 0 nothing to change" in said
    assert asked({PATH: reply()})[1] == "nothing is known yet: no engine has said who it is"


def test_json_is_what_the_server_answered() -> None:
    code, said = asked({PATH: reply(engine(0.41, 0.6))}, "--json")
    assert code == 0
    (first,) = json_.loads(said)["engines"]
    assert first["answer"]["proposals"][0]["option"] == "num_gpu_blocks_override"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"/metrics": text("")}, "answered 404: no kvscope, or one older than this command"),
        ({PATH: text("hello")}, "is no answer of this version of kvscope: JSON is malformed"),
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
    code, said = asked({PATH: reply()}, "--metrics-key-file", str(missing))
    assert (code, said.endswith("cannot be read: No such file or directory")) == (2, True)
    missing.write_text("\nsecret\nother\n")
    assert asked({PATH: reply()}, "--metrics-key-file", str(missing))[0] == 0
    missing.write_text("\n")
    assert "no key in it" in asked({PATH: reply()}, "--metrics-key-file", str(missing))[1]
