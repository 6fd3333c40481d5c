"""Sources of readings: a kvscope at a URL, or a recording that is played in this process."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from kvscope.answer_document import AnswerError, NothingKnownError, decode
from kvscope.doctor.scrape import parse_page
from kvscope.replay.player import Player
from kvscope.top.figures import EngineName, engines_of
from kvscope.top.reading import (
    ASKED,
    SEQUENCES,
    SequencesAnswer,
    ServerReading,
    UnknownAnswer,
    sequences_of,
    server_reading,
)
from kvscope_exporter.fetch.error import JSON_ERRORS
from kvscope_exporter.fetch.fetch import Reply
from kvscope_exporter.live.hub import Hub
from kvscope_exporter.live.view import UnknownHereError
from kvscope_exporter.paths import ANSWERS, LIVE_DATA, METRICS, SCRAPE, TARGETS

_TEXT = "text/plain;version=0.0.4"
"""Cheaper to parse than OpenMetrics, which has nothing that is shown besides."""
_TARGETS_SECONDS = 30.0
"""Between two looks at a sidecar's list of servers."""


class Source(Protocol):
    """The servers at one place."""

    @property
    def place(self) -> str: ...

    def read(self) -> list[ServerReading]:
        """A reading of each. Raises AnswerError. On one thread at a time."""
        ...


class _Target(msgspec.Struct):
    labels: dict[str, str] = {}


class UrlSource:
    """A kvscope server: one engine's own, or a sidecar with any number of servers."""

    def __init__(self, url: str, fetch: Callable[..., Reply], target: str = "") -> None:
        """fetch: `fetch_document` with its options. target: the only server to show, if any."""
        self.place = url.rstrip("/")
        self._document = fetch
        self._target = target
        self._targets: list[str] = []
        self._listed_at = float("-inf")

    def read(self) -> list[ServerReading]:
        try:
            now = time.monotonic()
            if now - self._listed_at > _TARGETS_SECONDS:
                self._targets, self._listed_at = self._list(), now
            path = SCRAPE.path if self._targets else METRICS.path
            wanted = [self._target] if self._target else self._targets or [""]
            return [self._server(path, target) for target in wanted]
        except AnswerError:
            self._listed_at = float("-inf")
            raise

    def _list(self) -> list[str]:
        """A sidecar's servers; empty: this kvscope has no list. Raises AnswerError."""
        try:
            body = self._fetch(TARGETS.path, "").body
            listed = msgspec.json.decode(body, type=list[_Target])
        except AnswerError as error:
            if error.status in (404, 405):
                return []
            raise
        except JSON_ERRORS as error:
            raise AnswerError(f"{self.place}{TARGETS.path}: no list of servers: {error}") from None
        return [name for one in listed if (name := one.labels.get("__param_target"))]

    def _server(self, path: str, target: str) -> ServerReading:
        found = self._fetch(path, target, _TEXT, {"detail": "full"})
        page = parse_page(found.body, found.content_type, f"{self.place}{path}")
        answers = {
            question.name: self._answers(question.name, kind, target) for question, kind in ASKED
        }
        answers[SEQUENCES] = {name: self._sequences(name, target) for name in engines_of(page)}
        server = f"{self.place} {target}" if target else self.place
        return server_reading(server, time.time(), page, answers)

    def _answers(
        self, name: str, kind: type[Any], target: str
    ) -> dict[EngineName, Any | UnknownAnswer] | UnknownAnswer:
        try:
            body = self._fetch(f"{ANSWERS.path}{name}", target).body
            replies = decode(body, self.place, name, kind)
        except NothingKnownError as error:  # its page is shown nevertheless
            return UnknownAnswer(str(error))
        except AnswerError as error:  # also of an older kvscope
            if error.status is None or error.is_unknown_server:
                raise
            return UnknownAnswer(str(error))
        return _by_engine(replies)

    def _sequences(self, name: EngineName, target: str) -> SequencesAnswer | UnknownAnswer:
        query = {"engine": "/".join(name), "blocks": "no"}
        try:
            body = self._fetch(f"{LIVE_DATA.path}snapshot", target, "*/*", query).body
        except AnswerError as error:
            if error.status is None:
                raise
            return UnknownAnswer(error.said if error.is_text else str(error))
        try:
            return sequences_of(body)
        except AnswerError as error:
            return UnknownAnswer(str(error))

    def _fetch(
        self,
        path: str,
        target: str,
        accept: str = "application/json",
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> Reply:
        return self._document(self.place, path, target=target, accept=accept, query=query)


class RecordingSource:
    """A recording at the moment of its player."""

    def __init__(self, path: Path, player: Player) -> None:
        self.place = str(path)
        self.player = player
        self._hub = Hub(lambda _name: player)

    def read(self) -> list[ServerReading]:
        body, content_type = self.player.render(_TEXT)
        status = self.player.status()
        page = parse_page(body, content_type, self.place)
        answers: dict[str, Any] = {
            question.name: _by_engine(self.player.answer(question).engines) for question, _ in ASKED
        }
        answers[SEQUENCES] = {name: self._sequences(name) for name in engines_of(page)}
        return [server_reading(self.place, status.at, page, answers, status)]

    def _sequences(self, name: EngineName) -> SequencesAnswer | UnknownAnswer:
        try:
            snapshot = self._hub.broadcast("", "/".join(name)).snapshot(blocks=False)
            return sequences_of(snapshot)
        except (UnknownHereError, AnswerError) as error:
            return UnknownAnswer(str(error))


def _by_engine(replies: Iterable[Any]) -> dict[EngineName, Any | UnknownAnswer]:
    """replies: each has model_name, engine, and an answer or the reason why it is unknown."""
    return {
        EngineName(one.model_name, one.engine): UnknownAnswer(one.unknown or "no reason is given")
        if one.answer is None
        else one.answer
        for one in replies
    }
