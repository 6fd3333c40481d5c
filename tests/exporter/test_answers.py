"""Answers besides the metrics: one for each engine, or the reason why it has none."""

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from kvscope_events.events import Batch, ObserverStopped, PoolCreated
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from kvscope_exporter.answers.prefixes import PREFIXES
from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.answers.residency import RESIDENCY
from kvscope_exporter.answers.whatif import WHATIF
from kvscope_exporter.paths import door_of
from kvscope_exporter.state import Cache, HelloTracker, Ledger
from kvscope_exporter.web.answers import AnswerSource, answers_router
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.exporter.page import make_exporter, put, step
from tests.exporter.scenario import play

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    model: str


def answered(asked: QueryContext) -> Size:
    return Size(model=asked.hello.model_name)


def refused(_asked: QueryContext) -> Size:
    raise UnknownError("nothing was looked up yet")


def broken(_asked: QueryContext) -> Size:
    raise RuntimeError("a bug")


QUESTION = Question(
    name="size", summary="A size.", events=("PoolCreated",), folds=(), read=answered
)


@pytest.fixture(autouse=True)
def one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUESTIONS, "size", QUESTION)


def with_pool() -> AnswerSource:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), step())
    return exporter


async def get(app: FastAPI, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as http:
        return await http.get(path)


async def test_an_engine_is_named_with_its_answer() -> None:
    app, exporter = FastAPI(), with_pool()
    app.include_router(answers_router(lambda _name: exporter))
    assert (await get(app, "/api/size")).json() == {
        "question": "size",
        "engines": [{"model_name": "demo", "engine": "0", "answer": {"model": "demo"}}],
    }


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (refused, "nothing was looked up yet"),
        (broken, "it failed here: the log of this process has the reason"),
    ],
)
async def test_no_answer_has_a_reason(question: object, reason: str) -> None:
    asked = Question(name="size", summary="", events=(), folds=(), read=question)  # type: ignore[arg-type]
    (engine,) = with_pool().answer(asked).engines
    assert (engine.answer, engine.unknown) == (None, reason)


async def test_what_a_server_does_not_tell_is_unknown() -> None:
    asked = Question(name="size", summary="", events=("NamesStored",), folds=(), read=answered)
    (engine,) = with_pool().answer(asked).engines
    assert engine.unknown == "this server does not report NamesStored"


def in_vain(_batch: Batch) -> None:
    raise RuntimeError("a bug")


async def test_only_a_failed_fold_that_a_question_reads_silences_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter, subscription = make_exporter()
    (target,) = exporter.targets
    exporter.render()
    target.folds[Cache].on_batch = in_vain  # type: ignore[method-assign]
    play(subscription)
    for question in (PREEMPTIONS, QUESTION):
        (engine,) = exporter.answer(question).engines
        assert engine.unknown is None
    for question in (ADVICE, PREFIXES, RESIDENCY, WHATIF):
        (engine,) = exporter.answer(question).engines
        assert (engine.answer, engine.unknown) == (None, "folds cache failed and were given up")


async def test_without_its_fold_of_hellos_an_engine_answers_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        HelloTracker, "on_observer_stopped", lambda _tracker, _event: in_vain(_event)
    )
    exporter, subscription = make_exporter()
    exporter.render()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), ObserverStopped("it failed"), step())
    (engine,) = exporter.answer(QUESTION).engines
    assert engine.unknown == "folds introduction failed and were given up"


async def test_a_question_sees_no_fold_that_it_does_not_name() -> None:
    def undeclared(asked: QueryContext) -> Size:
        return Size(model=str(asked.folds[Cache].known))

    asked = Question(name="size", summary="", events=(), folds=(Ledger,), read=undeclared)
    (engine,) = with_pool().answer(asked).engines
    assert engine.unknown == "it failed here: the log of this process has the reason"


async def test_an_observer_that_switched_itself_off_answers_nothing() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), step())
    put(subscription, 1, 0, ObserverStopped("vLLM is not as expected"))
    (engine,) = exporter.answer(QUESTION).engines
    assert engine.unknown is not None
    assert engine.unknown == "its observer is off: vLLM is not as expected"


async def test_before_the_state_is_known_there_is_no_answer() -> None:
    exporter, _ = make_exporter()  # it has said Hello, and nothing more
    (engine,) = exporter.answer(QUESTION).engines
    assert engine.unknown is not None
    assert "state is not known" in engine.unknown


async def test_a_sidecar_answers_for_its_only_server_and_else_wants_a_name() -> None:
    exporter = with_pool()

    class Watched:
        own = exporter

        def __init__(self, *names: str) -> None:
            self._names = list(names)

        def names(self) -> list[str]:
            return self._names

        def labels(self, _name: str) -> dict[str, str]:
            return {}

        def server(self, name: str) -> AnswerSource | None:
            return exporter if name in self._names else None

    one, two = sidecar_app(Watched("a")), sidecar_app(Watched("a", "b"))  # type: ignore[arg-type]
    assert (await get(one, "/api/size")).json()["engines"][0]["answer"] == {"model": "demo"}
    assert (await get(two, "/api/size?target=b")).status_code == 200
    unnamed = await get(two, "/api/size")
    assert (unnamed.status_code, unnamed.text) == (
        400,
        "name a server: ?target=NAME, one of: a, b\n",
    )
    assert (await get(two, "/api/size?target=c")).status_code == 404


def test_answers_are_behind_the_door_of_the_pages_and_changes_are_not() -> None:
    assert door_of("GET", "/api/size") == "pages"
    assert door_of("HEAD", "/api/size") == "pages"
    assert door_of("POST", "/api/gpu/release") == "control"
