"""Asks the process at the other end of an event stream something that it answers at once."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvscope_events.wire.frame import Frame, FrameError, FrameKind, RequestKind, read_frames
from kvscope_events.wire.link import Link
from kvscope_events.wire.run_directory import connectable, run_directory
from kvscope_events.wire.socket_file import answers
from kvscope_events.wire.wake import Wake

ASK_SECONDS = 1.0
"""Seconds between two requests, which may be lost on the way."""
MAX_BYTES = 64 << 20
CONNECT_SECONDS = 2.0
_CREDENTIALS = struct.Struct("3i")


class UnreachableError(Exception):
    """One line: the place, what is wrong there, and what to do."""


class NoAnswerError(UnreachableError):
    """The process exists, but its answering thread does not run."""


def endpoints_of(place: str) -> list[str]:
    """All endpoints of a place: one socket, a folder of sockets, or that of a `kvscope run`.

    Raises UnreachableError.
    """
    if place.startswith(("http://", "https://")):
        raise UnreachableError(
            f"{place}: a page of metrics does not answer this: name the endpoint of the events, "
            "ipc:///DIRECTORY/NAME.sock or their folder; `kvscope run` logs it at its start"
        )
    if place.startswith("tcp://"):
        return [place]
    path = Path(place.removeprefix("ipc://").removesuffix("/*")).absolute()
    if path.is_socket():
        return [f"ipc://{path}"]
    folder = path / "sockets" if (path / "sockets").is_dir() else path
    found = sorted(folder.glob("*.sock"))
    if not found:
        raise UnreachableError(
            f"{place}: there is no socket: name the folder that the server's log calls `events`"
        )
    return [f"ipc://{socket_path}" for socket_path in found]


def place_here() -> str:
    """The place of the only observed server in the run directory. Raises UnreachableError."""
    base = Path(run_directory())
    found = sorted(
        {
            str(path if path.parent == base else path.parent)
            for pattern in ("*.sock", "*/*.sock", "*/sockets/*.sock")
            for path in base.glob(pattern)
            if answers(str(path), CONNECT_SECONDS)
        }
    )
    if not found:
        raise UnreachableError(
            f"no observed server was found in {base}: start one, as in `kvscope run -- vllm serve "
            "MODEL`, or name the ENDPOINT that the server's log calls `events`"
        )
    if len(found) > 1:
        raise UnreachableError(f"several servers are observed here: name one of {', '.join(found)}")
    return found[0]


class ProcessConnection:
    """A connection to one process, for as many questions as it takes; used as a context."""

    def __init__(self, endpoint: str) -> None:
        """Raises UnreachableError if no process publishes there, EndpointError."""
        self.endpoint = endpoint
        where = connectable(endpoint)
        self.path = where.path
        if where.path is not None and not answers(where.path, CONNECT_SECONDS):
            raise UnreachableError(
                f"{endpoint}: no process publishes there; is the server running?"
            )
        self._session: bytes | None = None
        self._wake = Wake(endpoint)
        self._link = Link(where, self._wake, MAX_BYTES)

    def __enter__(self) -> "ProcessConnection":
        return self

    def __exit__(self, *raised: object) -> None:
        self._link.close()
        self._wake.close()

    def answer(self, request: RequestKind, answer: FrameKind, seconds: float) -> bytes | None:
        """The payload of the first answer; None: none has come by then. Raises UnreachableError."""
        link = self._link
        deadline = time.monotonic() + seconds
        asked_at = -ASK_SECONDS
        while (now := time.monotonic()) < deadline:
            if self._session is not None and now - asked_at >= ASK_SECONDS:
                link.ask(request, self._session, 0)
                asked_at = now
            try:
                message = link.receive(min(0.1, deadline - now))
            except OSError as error:  # of this process, which has no file left
                raise UnreachableError(f"{self.endpoint}: cannot be read: {error}") from None
            if message is None:
                continue
            for frame in _frames(message.body):
                if frame.session != self._session:
                    self._session, asked_at = frame.session, now - ASK_SECONDS
                if frame.kind == answer:
                    return frame.payload
        return None


def _frames(message: bytes) -> Iterator[Frame]:
    """Stops at the first invalid frame: the next message may be valid."""
    try:
        yield from read_frames(message)
    except (FrameError, msgspec.DecodeError):
        return


def publisher_of(path: str) -> int | None:
    """The process that listens at a socket; None if it is not in our pid namespace."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(CONNECT_SECONDS)
        try:
            probe.connect(path)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid = int(_CREDENTIALS.unpack(raw)[0])
    return pid or None
