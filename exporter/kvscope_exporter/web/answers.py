"""Answers over HTTP: `GET /api/NAME`, as JSON, computed on a worker thread."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from kvscope_exporter.answers.question import Question
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.paths import ANSWERS
from kvscope_exporter.targets.reply import Reply
from kvscope_exporter.web.metrics import METHODS

_ENCODER = msgspec.json.Encoder()


class AnswerSource(Protocol):
    """A server's exporter that can be asked."""

    def answer(self, question: Question[Any]) -> Reply:
        """The answers of all engines of the server."""
        ...


class NoServerError(Exception):
    """No server was named, or none has that name; `str()` lists the known ones."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


Find = Callable[[str], AnswerSource]
"""The exporter of the server named; an empty name stands for the only one. Raises NoServerError."""


Named = TypeVar("Named")


def only(server: Named, names: Callable[[], Iterable[str]]) -> Callable[[str], Named]:
    """Finds the only server of an app, by one of its names or an empty one."""

    def find(name: str) -> Named:
        if name and name not in (known := [*names()]):
            raise NoServerError(404, f"no server {name!r} here; known: {', '.join(known)}")
        return server

    return find


def answers_router(find: Find) -> APIRouter:
    """`GET /api/NAME` for every question, with `?target=SERVER` if there are several."""
    router = APIRouter(prefix=ANSWERS.path.rstrip("/"))
    for question in QUESTIONS.values():
        router.add_api_route(
            f"/{question.name}",
            _route(question, find),
            methods=METHODS,
            summary=question.summary,
            include_in_schema=False,
        )
    return router


def _route(question: Question[Any], find: Find) -> Callable[[str], Response]:
    def route(target: str = "") -> Response:
        try:
            exporter = find(target)
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        return Response(_ENCODER.encode(exporter.answer(question)), media_type="application/json")

    return route
