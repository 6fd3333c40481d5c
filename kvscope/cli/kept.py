"""A moment of a running server: the saved recording that has it, or one of what is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from kvscope.answer_document import AnswerError, Connection, fetch
from kvscope.replay.moment import moment_within, parse_moment

T = TypeVar("T")

_MAX_BYTES = 512 << 20
_LONGEST_NS = 3600 * 10**9
"""A recording that was saved longer after the moment is not looked into."""
_MOST = 4
"""Recordings that are downloaded for one question."""


class _ListedRecording(msgspec.Struct, frozen=True):
    name: str
    server: str
    saved: datetime

    @property
    def saved_ns(self) -> int:
        """Rounded up: it was stated to the second."""
        return round(self.saved.timestamp() * 1e9) + 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running kvscope, and how to ask it."""

    url: str
    target: str
    connection: Connection

    def ask(self, path: str, content: bytes | None = None) -> bytes:
        """Raises AnswerError."""
        return fetch(
            self.url,
            path,
            self.connection,
            target=self.target if content is not None else "",
            content=content,
            max_bytes=_MAX_BYTES,
        )


@contextmanager
def recording_of(server: Server, at: str) -> Iterator[Path]:
    """The file, until the end. Saves what the server keeps where no recording has that moment.

    Raises AnswerError.
    """
    try:
        parse_moment(at, 0, 0)
    except ValueError as error:
        raise AnswerError(f"--at: {error}") from None
    with TemporaryDirectory(prefix="kvscope-") as folder:
        for number, listed in enumerate(_candidates(server, at)):
            path = Path(folder) / f"{number}.kvsr"
            path.write_bytes(server.ask(f"recordings/{listed.name}"))
            if _has(path, at):
                yield path
                return
            path.unlink()
        raise AnswerError(
            f"{server.url}: no recording has {at}, and what is kept (--keep, 15 minutes unless "
            f"set) does not reach it: see {server.url.rstrip('/')}/api/recordings"
        )


def _candidates(server: Server, at: str) -> Iterator[_ListedRecording]:
    """The newest that may have it, then one of what is kept now. Raises AnswerError."""
    found = _decoded(server, server.ask("recordings"), list[_ListedRecording])
    near = [
        each
        for each in found
        if server.target in ("", each.server) and _may_have(each.saved_ns, at, server)
    ]
    yield from near[:_MOST]
    yield _decoded(server, server.ask("recordings", b"{}"), _ListedRecording)


def _may_have(saved_ns: int, at: str, server: Server) -> bool:
    begins_ns = saved_ns - _LONGEST_NS
    return begins_ns <= parse_moment(at, begins_ns, saved_ns) <= saved_ns


def _has(path: Path, at: str) -> bool:
    from kvscope_exporter.recorder.format import RecordingError
    from kvscope_exporter.recorder.reader import RecordingFile

    try:
        file = RecordingFile(path)
        moment_within(at, file.begins_ns, file.ends_ns)
    except (RecordingError, ValueError):
        return False
    return True


def _decoded(server: Server, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise AnswerError(f"{server.url}/api/recordings: not a list of them: {error}") from None
