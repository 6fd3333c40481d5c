"""`why` names the cause first in incidents that were laid in, and nothing in quiet hours."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from kvscope_events.vocabulary import RejectReason
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.catalogue.incident import PHRASES, Kind
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.ring import Ring
from kvscope_exporter.replay.playback import Playback
from tests.replay.recorded import save
from tests.support.paced import Call
from tests.why.incidents import ASKED_LATE, HELD_OUT, USED, Incident
from tests.why.stage import GIB, Stage, chat, play

INCIDENTS = {**USED, **HELD_OUT, **ASKED_LATE}
ONE_OF_EACH = {
    **{kind: each for each, kind in HELD_OUT.items()},
    **{k: each for each, k in USED.items()},
}
"""One incident for each cause; the others run at night."""
QUIET = ("steady", "conversations", "short", "long", "waves")


@pytest.mark.parametrize(
    ("incident", "cause"),
    [
        pytest.param(
            *(each, kind),
            id=each.__name__,
            marks=() if ONE_OF_EACH.get(kind) is each else pytest.mark.nightly,
        )
        for each, kind in INCIDENTS.items()
    ],
)
def test_the_cause_is_named_first(incident: Incident, cause: Kind) -> None:
    answer = incident()
    assert answer.chain[0].kind == cause, answer.sentence
    assert answer.remedy
    assert answer.remedy in answer.sentence
    assert [clause.at_seconds for clause in answer.chain[1:]] == sorted(
        clause.at_seconds for clause in answer.chain[1:]
    )


def test_a_single_reset_is_told_without_its_number() -> None:
    stage = Stage()
    stage.play(chat(2, 60), 60)
    stage.pool.reset()
    answer = play(stage, chat(3, 30), 30)
    assert answer.chain[0].kind == "cache_reset"
    assert answer.chain[0].text == "the prefix cache was emptied"


def test_every_cause_has_words() -> None:
    assert list(PHRASES) == list(get_args(Kind))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind",
    [*QUIET[:2], *(pytest.param(kind, marks=pytest.mark.weekly) for kind in QUIET[2:])],
)
def test_nothing_is_named_in_a_quiet_hour(kind: str) -> None:
    stage, calls = Stage(), list(_quiet_calls(kind))
    for minute in range(0, 60, 2):
        part = [replace(c, at=c.at - 60 * minute) for c in calls if _is_in(c, minute)]
        answer = play(stage, part, 120)
        assert answer.chain == [], (minute, answer.sentence)
        assert answer.sentence.startswith("Nothing is wrong")


def test_samples_are_neither_longer_prompts_nor_longer_answers() -> None:
    """A client asks for eight samples of the usual prompts, with the usual answers."""
    stage = Stage(num_blocks=420)
    stage.play(chat(1, 300), 300)
    sampled = [replace(call, samples=8) for call in chat(31, 295, rate=0.8)]
    answer = play(stage, sorted([*chat(2, 300), *sampled], key=lambda call: call.at), 300)
    kinds = {clause.kind for clause in answer.chain}
    assert not {"longer_prompts", "longer_answers"} & kinds, answer.sentence


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [("queue_full", True), ("invalid", False), ("prompt_too_long", False), ("client_limit", False)],
)
def test_only_requests_that_more_capacity_would_serve_are_refusals(
    reason: RejectReason, is_told: bool
) -> None:
    stage = Stage()
    stage.play(chat(1, 90), 90)
    for _ in range(50):
        stage.refuse(reason)
    answer = play(stage, chat(2, 20), 20)
    assert ("refusals" in {clause.kind for clause in answer.chain}) is is_told, answer.sentence


def test_an_engine_without_any_request_is_well() -> None:
    assert Stage().why().chain == []


def test_the_time_of_the_cause_is_that_of_the_neighbour() -> None:
    stage = Stage()
    play(stage, chat(1, 300), 300)
    began = stage.now_ns / 1e9
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    answer = play(stage, chat(2, 60), 60)
    assert answer.chain[0].at_seconds == pytest.approx(began, abs=1.5)
    assert answer.chain[0].evidence == {"pid": 4242, "bytes": int(7.2 * GIB)}
    assert answer.confidence == "high"
    assert "longer prompts" in answer.excluded


def test_an_incident_is_named_until_it_has_been_over_for_five_minutes() -> None:
    stage = Stage()
    play(stage, chat(1, 300), 300)
    play(stage, chat(2, 40, rate=15), 40)
    assert play(stage, chat(3, 240), 240).chain[0].kind == "more_requests"
    assert play(stage, chat(4, 180), 180).chain == []


@pytest.mark.nightly
def test_a_recording_gives_the_answer_that_was_given_then(tmp_path: Path) -> None:
    limits = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)

    def recorder(clock: Clock) -> Recorder:
        ring = Ring(limits.keep_ns, None, "paced")
        return Recorder("paced", ring, limits, clock=clock, compat=[], settings={})

    stage = Stage(recorded_by=recorder)
    play(stage, chat(1, 120), 120)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    play(stage, chat(2, 60), 60)
    stage.gpu.note(stage.now_ns)
    stage.exporter.start()
    stage.exporter.render()
    answer = stage.why()
    stage.exporter.stop()
    assert answer.chain[0].kind == "neighbour"
    assert stage.recorder is not None
    save(stage.recorder, tmp_path / "neighbour.kvsr")
    playback = Playback(RecordingFile(tmp_path / "neighbour.kvsr"))
    playback.to_page(len(playback.index.pages) - 1)
    (engine,) = playback.exporter.answer(WHY).engines
    assert engine.answer == answer


def _is_in(call: Call, minute: int) -> bool:
    return 60 * minute <= call.at < 60 * minute + 120


def _quiet_calls(kind: str) -> Iterator[Call]:
    loads = {
        "steady": chat(3, 3600),
        "conversations": chat(3, 3600, users=20, template=4),
        "short": chat(3, 3600, answer=(5, 20), rate=4),
        "long": chat(3, 3600, question=(20, 60), answer=(40, 200), rate=0.8),
        "waves": chat(3, 3600, rate=3),
    }
    rng = Random(3)
    for call in loads[kind]:
        share = 0.5 + 0.25 * math.sin(call.at / 240) if kind == "waves" else 1.0
        if rng.random() < share:
            yield call
