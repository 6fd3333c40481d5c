"""A worker in the Python of a server: one line of JSON to it, one line back."""

import json
import os
import subprocess
from collections import deque
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from kvscope.twin.traffic import Traffic
from kvscope.whatif.findings import WhatIfError

_STUB = """
import sys, types
for name in ("kvscope", "kvscope.twin"):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [sys.argv[1]]
from kvscope.twin.worker import main
main()
"""
"""Makes two of our files importable there, and nothing else of ours."""
_KEPT_LINES = 20


class Worker:
    """The process, and its answers: vLLM's scheduler with the calls of a recording."""

    name = "vllm"

    def __init__(self, python: Path, traffic: Traffic) -> None:
        """Raises WhatIfError."""
        self._python = python
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith("KVSCOPE_") and name != "PYTHONPATH"
        }
        try:
            self._process = subprocess.Popen(
                [str(python), "-c", _STUB, str(Path(__file__).parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise WhatIfError(
                f"--python {python}: cannot be started: {error.strerror}: give the Python that "
                "the server runs with, in whose environment vLLM is"
            ) from None
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        calls = [asdict(call) for call in traffic.calls.values()]
        try:
            self.version = str(self.ask(calls=calls))
        except WhatIfError:
            self.close()
            raise

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what it had not read is of no use to a process that has ended
        self._reader.join()

    def ask(self, **question: Any) -> Any:
        """Raises WhatIfError: it refuses, or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._reader.join()
            why = next((said for said in reversed(self._said) if said.strip()), "it said nothing")
            raise WhatIfError(
                f"--python {self._python}: the worker ended ({why.strip()}): give the Python that "
                "the server runs with, in whose environment vLLM is"
            )
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise WhatIfError(str(found["error"]))
        return found["answer"]

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._said.extend(lines)
