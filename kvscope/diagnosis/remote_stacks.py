"""Asks the process at the other end of an event stream for its threads' stacks."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvscope_events.stacks import HELD_SIGNAL, Stacks, catches
from kvscope_events.wire.frame import Frame, FrameError, FrameKind, RequestKind, read_frames
from kvscope_events.wire.link import Link
from kvscope_events.wire.readers import eventfd
from kvscope_events.wire.run_directory import connectable
from kvscope_events.wire.socket_file import answers

ASK_SECONDS = 1.0
"""Seconds between two requests, which may be lost on the way."""
MAX_BYTES = 64 << 20
_CONNECT_SECONDS = 2.0
_CREDENTIALS = struct.Struct("3i")


class NoStacksError(Exception):
    """One line: the place, the reason why there are no stacks, and what to do."""


class NoAnswerError(NoStacksError):
    """The process exists, but its answering thread does not run."""


def endpoints_of(place: str) -> list[str]:
    """All endpoints of a place: one socket, a folder of sockets, or that of a `kvscope run`.

    Raises NoStacksError.
    """
    if place.startswith(("http://", "https://")):
        raise NoStacksError(
            f"{place}: a page of metrics has no stacks: name the endpoint of the events, "
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
        raise NoStacksError(
            f"{place}: there is no socket: name the folder that the server's log calls `events`"
        )
    return [f"ipc://{socket_path}" for socket_path in found]


def ask(endpoint: str, seconds: float) -> Stacks:
    """Raises NoStacksError, also if nothing has come by then; EndpointError."""
    where = connectable(endpoint)
    if where.path is not None and not answers(where.path, _CONNECT_SECONDS):
        raise NoStacksError(f"{endpoint}: no process publishes there; is the server running?")
    wake = eventfd(endpoint)
    link = Link(where, wake, MAX_BYTES)
    try:
        found = _asked(link, seconds)
    finally:
        link.close()
        os.close(wake)
    if found is None:
        raise NoAnswerError(f"{endpoint}: {_silence(where.path, seconds)}")
    return found


def write_held(endpoint: str) -> int:
    """Have the process write its stacks to its own log, even while native code holds its
    interpreter; returns its pid. Raises NoStacksError, EndpointError."""
    path = connectable(endpoint).path
    pid = None if path is None else _publisher(path)
    if pid is None:
        raise NoStacksError(
            f"{endpoint}: the process that publishes there cannot be identified from here: run "
            "this command on its machine, in its container"
        )
    try:
        if _state(pid) == "T":
            raise NoStacksError(
                f"{endpoint}: process {pid} is stopped (SIGSTOP): continue it first"
            )
        if not catches(pid, HELD_SIGNAL):
            raise NoStacksError(
                f"{endpoint}: process {pid} has no handler for signal {HELD_SIGNAL}, which would "
                "end it: its observer is older than this command"
            )
        os.kill(pid, HELD_SIGNAL)
    except OSError as error:
        raise NoStacksError(f"{endpoint}: process {pid}: {error.strerror}") from None
    return pid


def _asked(link: Link, seconds: float) -> Stacks | None:
    deadline = time.monotonic() + seconds
    session = None
    asked_at = -ASK_SECONDS
    while (now := time.monotonic()) < deadline:
        if session is not None and now - asked_at >= ASK_SECONDS:
            link.ask(RequestKind.STACKS, session, 0)
            asked_at = now
        message = link.receive(min(0.1, deadline - now))
        link.faults(time.monotonic_ns())
        if message is None:
            continue
        for frame in _frames(message, link.answers):
            if frame.session != session:
                session, asked_at = frame.session, now - ASK_SECONDS
            if frame.kind == FrameKind.STACKS:
                return Stacks.decoded(frame.payload)
    return None


def _frames(message: bytes, topic: bytes) -> Iterator[Frame]:
    """Stops at the first invalid frame: the next message may be valid."""
    try:
        yield from read_frames(message, len(topic) if message.startswith(topic) else 0)
    except (FrameError, msgspec.DecodeError):
        return


def _silence(path: str | None, seconds: float) -> str:
    pid = None if path is None else _publisher(path)
    if pid is None:
        return f"no stacks came in {seconds:g} s; its kvscope may be older than this command"
    try:
        if _state(pid) == "T":
            return f"process {pid} is stopped (SIGSTOP): continue it first"
        if not catches(pid, HELD_SIGNAL):
            return f"process {pid} does not answer; its observer is older than this command"
    except OSError:
        return f"process {pid} has just ended"
    return (
        f"process {pid} did not answer in {seconds:g} s: native code holds its interpreter, or the "
        "machine is overloaded. --held makes it write its stacks to its own log all the same; if "
        "its interpreter is not held, that may end it"
    )


def _publisher(path: str) -> int | None:
    """The process that listens at a socket; None if it is not in our pid namespace."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid = int(_CREDENTIALS.unpack(raw)[0])
    return pid or None


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
