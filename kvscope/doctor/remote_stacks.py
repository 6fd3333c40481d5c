"""The stacks of the threads of the process at the other end of an event stream."""

import os

from kvscope.doctor.asking import NoAnswerError, ProcessConnection, UnreachableError, publisher_of
from kvscope_events.stacks import HELD_SIGNAL, Stacks, catches
from kvscope_events.wire.frame import FrameKind, RequestKind
from kvscope_events.wire.run_directory import connectable


def ask(endpoint: str, seconds: float) -> Stacks:
    """Raises UnreachableError, also if nothing has come by then; EndpointError."""
    with ProcessConnection(endpoint) as asked:
        found = asked.answer(RequestKind.STACKS, FrameKind.STACKS, seconds)
        if found is None:
            raise NoAnswerError(f"{endpoint}: {_silence(asked.path, seconds)}")
    return Stacks.decoded(found)


def write_held(endpoint: str) -> int:
    """Have the process write its stacks to its own log, even while native code holds its
    interpreter; returns its pid. Raises UnreachableError, EndpointError."""
    path = connectable(endpoint).path
    pid = None if path is None else publisher_of(path)
    if pid is None:
        raise UnreachableError(
            f"{endpoint}: the process that publishes there cannot be identified from here: run "
            "this command on its machine, in its container"
        )
    try:
        if _state(pid) == "T":
            raise UnreachableError(
                f"{endpoint}: process {pid} is stopped (SIGSTOP): continue it first"
            )
        if not catches(pid, HELD_SIGNAL):
            raise UnreachableError(
                f"{endpoint}: process {pid} has no handler for signal {HELD_SIGNAL}, which would "
                "end it: its observer is older than this command"
            )
        os.kill(pid, HELD_SIGNAL)
    except OSError as error:
        raise UnreachableError(f"{endpoint}: process {pid}: {error.strerror}") from None
    return pid


def _silence(path: str | None, seconds: float) -> str:
    pid = None if path is None else publisher_of(path)
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


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
