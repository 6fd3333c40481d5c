"""Sources of readings: a kvscope at a URL, or a recording that is played in this process."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from exporter.fetch.error import JSON_ERRORS
from exporter.fetch.fetch import MAX_BYTES
from exporter.live.hub import Hub
from exporter.live.view import UnknownHereError
from exporter.paths import LIVE_DATA, METRICS, SCRAPE, TARGETS
from kvscope.answer_document import AnswerError, NothingKnownError, decode, fetch, fetch_document
from kvscope.diagnosis.scrape import ScrapeError, parse_page
from kvscope.replaying.player import Player
from kvscope.top.figures import EngineName, engines_of
from kvscope.top.reading import (
    ASKED,
    SEQUENCES,
    ReadingError,
    SequencesAnswer,
    ServerReading,
    Unknown,
    sequences_of,
    server_reading,
)

_TEXT = "text/plain;version=0.0.4"
"""Cheaper to parse than OpenMetrics, which has nothing that is shown besides."""
_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_TARGETS_SECONDS = 30.0
"""Between two looks at a sidecar's list of servers."""


class Source(Protocol):
    """The servers at one place."""

    @property
    def place(self) -> str: ...

    def read(self) -> list[ServerReading]:
        """A reading of each. Raises ReadingError. On one thread at a time."""
        ...


class _Target(msgspec.Struct):
    labels: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options with which a URL is asked."""

    target: str = ""
    """The only server of a sidecar to show; empty: all of them."""
    key_file: Path | None = None
    ca: Path | None = None
    seconds: float = 10.0


class UrlSource:
    """A kvscope server: one engine's own, or a sidecar with any number of servers."""

    def __init__(self, url: str, access: Access) -> None:
        self.place = url.rstrip("/")
        self._access = access
        self._targets: list[str] = []
        self._listed_at: float | None = None

    def read(self) -> list[ServerReading]:
        try:
            now = time.monotonic()
            if self._listed_at is None or now - self._listed_at > _TARGETS_SECONDS:
                self._targets, self._listed_at = self._list(), now
            path = SCRAPE.path if self._targets else METRICS.path
            wanted = [self._access.target] if self._access.target else self._targets or [""]
            return [self._server(path, target) for target in wanted]
        except (AnswerError, ScrapeError) as error:
            self._listed_at = None
            raise ReadingError(str(error)) from None

    def _list(self) -> list[str]:
        """A sidecar's servers; empty: this kvscope has no list. Raises AnswerError."""
        try:
            body = self._fetch(TARGETS.path, "", "application/json")[0]
        except AnswerError as error:
            if error.status in (404, 405):
                return []
            raise
        try:
            listed = msgspec.json.decode(body, type=list[_Target])
        except JSON_ERRORS as error:
            raise AnswerError(f"{self.place}{TARGETS.path}: no list of servers: {error}") from None
        return [name for one in listed if (name := one.labels.get("__param_target"))]

    def _server(self, path: str, target: str) -> ServerReading:
        body, content_type = self._fetch(path, target, _TEXT)
        page = parse_page(body, content_type, f"{self.place}{path}")
        answers = {
            question.name: self._answers(question.name, kind, target) for question, kind in ASKED
        }
        answers[SEQUENCES] = {name: self._sequences(name, target) for name in engines_of(page)}
        server = f"{self.place} {target}" if target else self.place
        return server_reading(server, time.time(), page, answers)

    def _answers(
        self, name: str, kind: type[Any], target: str
    ) -> dict[EngineName, Any | Unknown] | Unknown:
        access = self._access
        try:
            body = fetch(
                *(self.place, name),
                target=target,
                key_file=access.key_file,
                ca=access.ca,
                seconds=access.seconds,
            )
            replies = decode(body, self.place, name, kind)
        except NothingKnownError as error:  # its page is shown nevertheless
            return Unknown(str(error))
        except AnswerError as error:  # also of an older kvscope
            if error.status is None or error.is_unknown_server:
                raise
            return Unknown(str(error))
        return {
            EngineName(reply.model_name, reply.engine): _answer(reply.answer, reply.unknown)
            for reply in replies
        }

    def _sequences(self, name: EngineName, target: str) -> SequencesAnswer | Unknown:
        try:
            query = {"engine": "/".join(name), "blocks": "no"}
            return sequences_of(self._fetch(f"{LIVE_DATA.path}snapshot", target, "*/*", query)[0])
        except AnswerError as error:
            if error.status is None:
                raise
            return Unknown(error.said if error.is_text else str(error))
        except ReadingError as error:
            return Unknown(str(error))

    def _fetch(
        self, path: str, target: str, accept: str, query: Mapping[str, str] = _NO_QUERY
    ) -> tuple[bytes, str]:
        access = self._access
        document = fetch_document(
            *(self.place, path),
            target=target,
            key_file=access.key_file,
            ca=access.ca,
            seconds=access.seconds,
            accept=accept,
            max_bytes=MAX_BYTES,
            query=query,
        )
        return document.body, document.content_type


class RecordingSource:
    """A recording at the moment of its player."""

    def __init__(self, path: Path, player: Player) -> None:
        self.place = str(path)
        self.player = player
        self._hub = Hub(lambda _name: player)

    def read(self) -> list[ServerReading]:
        body, content_type = self.player.render(_TEXT)
        status = self.player.status()
        try:
            page = parse_page(body, content_type, self.place)
        except ScrapeError as error:
            raise ReadingError(str(error)) from None
        answers: dict[str, Any] = {}
        for question, _ in ASKED:
            replies = self.player.answer(question).engines
            answers[question.name] = {
                EngineName(reply.model_name, reply.engine): _answer(reply.answer, reply.unknown)
                for reply in replies
            }
        answers[SEQUENCES] = {name: self._sequences(name) for name in engines_of(page)}
        return [server_reading(self.place, status.at, page, answers, status)]

    def _sequences(self, name: EngineName) -> SequencesAnswer | Unknown:
        try:
            snapshot = self._hub.broadcast("", "/".join(name)).snapshot(blocks=False)
            return sequences_of(snapshot)
        except (UnknownHereError, ReadingError) as error:
            return Unknown(str(error))


def _answer(answer: Any, unknown: str | None) -> Any | Unknown:
    return answer if answer is not None else Unknown(unknown or "no reason is given")
