"""One child process that renders a chat template, killed when it takes too long or too much."""

import os
import select
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

RENDER_SECONDS = 2.0
"""Wall-clock time for one conversation; 8 MiB of messages take a tenth of it."""
MEMORY_BYTES = 128 * 2**20
"""Address space of the child, Python's 30 MB included; 8 MiB of any text take less than 112 MiB."""
NICENESS = 5
"""Niceness of the child: a looping one leaves the processor to other requests."""
START_SECONDS = 20.0
"""Time for the child to start and compile; half a second on an idle machine."""
MAX_ANSWER_BYTES = 96 * 2**20
"""Longest frame that is read; the child's memory ends before that."""

_GRACE_SECONDS = 0.5
"""The child ends itself first; this is for one that has been stopped."""
_LENGTH = struct.Struct("<I")
_SCRIPT = Path(__file__).with_name("template_child.py")


class TemplateLimitError(Exception):
    """Rendering took too long or too much memory; the process is gone."""


class Answer(msgspec.Struct):
    """The child's answer: one of these."""

    text: str | None = None
    refused: str | None = None
    """Raised by the template itself."""
    failed: str | None = None
    """Raised by Python, in the template."""
    broken: str | None = None
    """The template cannot be compiled."""


_decoder = msgspec.json.Decoder(Answer)


class TemplateProcess:
    """A running child. One thread at a time; unusable after a TemplateLimitError."""

    def __init__(self, template: str, variables: dict[str, Any]) -> None:
        """Start it and compile the template; `compiled` has the result.

        Raises TemplateLimitError, or OSError if no process can be started.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), str(RENDER_SECONDS), str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C at a terminal ends the server, and the server this
        )
        self._end = weakref.finalize(self, _end, self._process)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
        self.compiled = self._ask({"template": template, "variables": variables}, START_SECONDS)

    def render(self, messages: Sequence[dict[str, str]]) -> Answer:
        """The rendered conversation. Blocks. Raises TemplateLimitError."""
        return self._ask(messages, RENDER_SECONDS)

    def close(self) -> None:
        """End the child. Idempotent."""
        self._end()

    def _ask(self, question: object, seconds: float) -> Answer:
        deadline = time.monotonic() + seconds + _GRACE_SECONDS
        frame = msgspec.json.encode(question)
        try:
            self._write(_LENGTH.pack(len(frame)) + frame, deadline)
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
            if length > MAX_ANSWER_BYTES:
                raise TemplateLimitError(f"the text is over {MAX_ANSWER_BYTES} bytes")
            return _decoder.decode(self._read(length, deadline))
        except (BrokenPipeError, EOFError):
            self.close()
            took = f"it took over {seconds:g} s, or too much memory"
            raise TemplateLimitError(took) from None
        except TimeoutError:
            self.close()
            raise TemplateLimitError(f"it took over {seconds:g} s") from None
        except (TemplateLimitError, msgspec.DecodeError) as error:
            self.close()
            raise TemplateLimitError(str(error)) from None

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        descriptor, rest = self._process.stdin, memoryview(data)
        while rest:
            _wait(descriptor.fileno(), select.POLLOUT, deadline)
            written = descriptor.write(rest[: select.PIPE_BUF])
            rest = rest[written:]

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, parts = self._process.stdout, []
        while size:
            _wait(descriptor.fileno(), select.POLLIN, deadline)
            part = descriptor.read(min(size, 2**20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
