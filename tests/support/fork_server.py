"""A process that has imported the engine, and of which a test's `kvscope` is a fork.

The imports of torch and transformers are most of what a start costs. A fork runs the same module
as `__main__` in a process of its own. It differs from a start in what it finds imported, in its
command line under `/proc`, and in its end: threads are joined and what is registered for the exit
is called, but modules are not taken apart, which costs more than the rest of a short command.

    python -m tests.support.fork_server FD PATH   (of a socket that listens; tests.support.forked)
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

LONGEST_REQUEST = 1 << 17
"""More than a Unix socket takes at once: the environment is a few kilobytes."""
NUMBER_BYTES = 8
"""The length of a pid or an exit status in the pipe of a fork."""
_PRELOADED = (
    *("kvscope_engine.build", "kvscope_engine.server.app", "kvscope_engine.server.control"),
    *("kvscope_exporter.sidecar.sidecar", "kvscope_exporter.web.sidecar_app"),
    *("kvscope.cli", "kvscope.run.background_server", "kvscope.serving.engine"),
    *("kvscope_events.wire.publisher", "kvscope.doctor.remote_stacks"),
)


class Start(NamedTuple):
    """The program that a fork becomes."""

    module: str
    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    ignores_hangup: bool
    """Whether its parent ignores SIGHUP, which a child inherits."""


def encoded(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "little", signed=True)


def decoded(number: bytes) -> int:
    return int.from_bytes(number, "little", signed=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held while a process connects to the socket at `path`, and while the socket is removed."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _serve(listener: socket.socket, path: Path) -> Start:
    """Returns in each fork only; this process ends with the last one that asks."""
    asking: list[socket.socket] = []
    while True:
        for ready in select.select([listener, *asking], [], [])[0]:
            if ready is listener:
                asking.append(listener.accept()[0])
                continue
            message, files, *_ = socket.recv_fds(ready, LONGEST_REQUEST, 3)
            if not message:
                ready.close()
                asking.remove(ready)
                continue
            _reap()
            if os.fork() == 0:
                for one in (listener, *asking):
                    one.close()
                _fork_guarded(*files)
                return Start(*json.loads(message))
            for file in files:
                os.close(file)
        if not asking and _withdrawn(listener, path):
            os._exit(0)


def _withdrawn(listener: socket.socket, path: Path) -> bool:
    """Whether no process has connected meanwhile; then none can any more."""
    try:
        with locked(path):
            if select.select([listener], [], [], 0)[0]:
                return False
            path.unlink()
    except FileNotFoundError:  # the run has ended, and its folder is gone
        pass
    return True


def _reap() -> None:
    """The guards that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def _fork_guarded(output: int, errors: int, status: int) -> None:
    """Returns in the fork; this process stays to report its pid and its end."""
    pid = os.fork()
    if pid == 0:
        os.dup2(output, 1)
        os.dup2(errors, 2)
        for file in (output, errors, status):
            os.close(file)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the fork
    for file in (0, 1, 2, output, errors):
        os.close(file)
    os.write(status, encoded(pid))
    _, ended = os.waitpid(pid, 0)
    os.write(status, encoded(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def _num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _run(module: str) -> int:
    """Its exit status, as the interpreter would have it."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if isinstance(ending.code, int):
            return ending.code
        if ending.code is not None:
            print(ending.code, file=sys.stderr)
        return int(ending.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """As multiprocessing ends a fork."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    for module in _PRELOADED:
        importlib.import_module(module)
    assert _num_threads() == 1, "a fork has none of the other threads, but what they had locked"
    gc.freeze()  # a collection in a fork would copy every page
    start = _serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    signal.signal(signal.SIGHUP, signal.SIG_IGN if start.ignores_hangup else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(start.environment)
    os.chdir(start.folder)
    sys.argv[1:] = start.arguments
    _end(_run(start.module))


if __name__ == "__main__":
    main()
