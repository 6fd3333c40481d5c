"""The Python stacks of all threads, read while this thread has the interpreter.

So no frame changes meanwhile. faulthandler walks the frames of running threads in a signal handler,
which occasionally crashes a busy process with SIGSEGV: it is only for a blocked interpreter.
"""

import faulthandler
import os
import select
import signal
import sys
import threading
import time
from types import FrameType

import msgspec

HELD_SIGNAL = int(signal.SIGRTMIN) + 7
"""Writes the stacks although native code holds the interpreter: 41 on Linux with glibc."""
MAX_FRAMES = 100
MAX_THREADS = 300
STDERR = 2
_PORTION = 2048  # of a pipe that poll calls writable at least PIPE_BUF, 4096, never block


class Stacks(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a reader that asks for them."""

    pid: int
    """The publisher's pid in its own namespace."""
    text: str

    @classmethod
    def now(cls) -> "Stacks":
        # A name or a path may hold what no message may: half a character.
        return cls(os.getpid(), stacks().encode(errors="replace").decode())

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, payload: bytes) -> "Stacks":
        """Raises msgspec.ValidationError or msgspec.DecodeError."""
        return msgspec.msgpack.decode(payload, type=cls)


def stacks() -> str:
    """As faulthandler writes them, with the names of the threads. Takes no lock of Python's own
    that a signal handler may not take, and reads no file."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    lines: list[str] = []
    for ident, frame in list(frames.items())[:MAX_THREADS]:
        lines.append(f"Thread {ident:#018x} ({names.get(ident, '?')}) (most recent call first):")
        lines += _calls(frame)
    if len(frames) > MAX_THREADS:
        lines.append(f"({len(frames) - MAX_THREADS} more threads)")
    return "\n".join(lines) + "\n"


def write_stacks(seconds: float) -> None:
    """Write them to standard error; a reader that takes nothing for that long loses the rest."""
    rest = (f"kvscope: the stacks of process {os.getpid()}\n" + stacks()).encode(errors="replace")
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    deadline = time.monotonic() + seconds
    while rest:
        left = max(0.0, deadline - time.monotonic())
        if not poll.poll(left * 1000):
            return
        rest = rest[os.write(STDERR, rest[:_PORTION]) :]


def answer_held_signal() -> None:
    """Make HELD_SIGNAL write the stacks, unless the process uses that signal itself."""
    if sys.__stderr__ is not None and not _used(HELD_SIGNAL):
        faulthandler.register(HELD_SIGNAL, file=STDERR, all_threads=True, chain=False)


def catches(pid: int | str, number: int) -> bool:
    """Whether a process has a handler for a signal; raises OSError where it cannot be read."""
    return bool(_signals(pid, "SigCgt") >> (number - 1) & 1)


def ignores(pid: int | str, number: int) -> bool:
    """Whether a process ignores a signal; raises OSError where it cannot be read."""
    return bool(_signals(pid, "SigIgn") >> (number - 1) & 1)


def _used(number: int) -> bool:
    try:
        return catches("self", number) or ignores("self", number)
    except OSError:
        return signal.getsignal(number) is not signal.SIG_DFL


def _signals(pid: int | str, name: str) -> int:
    with open(f"/proc/{pid}/status") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1], 16)
    return 0


def _calls(frame: FrameType | None) -> list[str]:
    lines: list[str] = []
    while frame is not None and len(lines) < MAX_FRAMES:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    if frame is not None:
        lines.append("  ...")
    return lines
