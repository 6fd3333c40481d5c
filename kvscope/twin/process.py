"""A worker in the Python of a server: one line of JSON to it, one line back."""

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
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
_WHICH = "give the Python that the server runs with, in whose environment vLLM is"


class Worker:
    """The process, and its answers: vLLM's scheduler with the calls of a recording."""

    name = "vllm"

    def __init__(self, python: Path, traffic: Traffic) -> None:
        """Raises WhatIfError."""
        self._python = python
        self._said = TemporaryFile("w+", errors="replace")  # noqa: SIM115
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
                stderr=self._said,
                text=True,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            raise WhatIfError(
                f"--python {python}: cannot be started: {error.strerror}: {_WHICH}"
            ) from None
        calls = [asdict(call) | {"times": []} for call in traffic.calls.values()]
        try:
            self.version, self.options = self.ask(calls=calls)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._process.kill()
        with suppress(BrokenPipeError):  # what it had not read is of no use to it any more
            self._process.communicate()
        self._said.close()

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
            self._said.seek(0)
            said = [text.strip() for text in self._said if text.strip()]
            raise WhatIfError(
                f"--python {self._python}: the worker ended "
                f"({said[-1] if said else 'it said nothing'}): {_WHICH}"
            )
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise WhatIfError(str(found["error"]))
        return found["answer"]
