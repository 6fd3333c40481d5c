"""Servers in environments of their own, which scripts install, perhaps at this moment; and their
sources."""

import fcntl
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest


def python_of(environment: Path, server: str) -> Path:
    """The server's interpreter. Without one, all tests that need it are skipped; not in CI.

    `server` is its name, and in lower case the make target that installs it.
    """
    # tools/run_tests.py ends us so: then, too, no server may be left behind.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", 143))
    lock = environment / ".lock"
    if lock.exists():
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # until an installation under way has ended
    if (environment / ".installed").exists():
        return environment / "bin" / "python"
    failed = environment / ".failed"
    missing = f"not installed, see `make {server.lower()}`"
    reason = failed.read_text().strip() if failed.exists() else missing
    if os.environ.get("CI") == "true":
        pytest.fail(f"no {server} under {environment}: {reason}")
    pytest.skip(f"NO {server.upper()}, nothing was tested with one: {reason}")


@dataclass(frozen=True, slots=True)
class Reason:
    """Statements of a server's source, in one file and in this order, that make it count otherwise
    than we do."""

    file: str
    """Below the server's package."""
    statements: tuple[str, ...]

    def find(self, python: Path, package: str) -> None:
        """Raises ValueError unless the package of this Python has the statements, in this order."""
        (folder,) = python.parent.parent.glob(f"lib/python3*/site-packages/{package}")
        source = (folder / self.file).read_text()
        place = 0
        for statement in self.statements:
            place = source.index(statement, place) + len(statement)
