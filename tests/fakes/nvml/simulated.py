"""The state file behind the library, and what the library counts."""

import ctypes
import os
from pathlib import Path

State = dict[str, object]
"""Keys and values of the state file; see nvml.c."""


class Simulated:
    """Hardware that changes at once when a test says so."""

    def __init__(self, path: Path, library: ctypes.CDLL | None = None) -> None:
        """library: loaded in this process, to count calls; None where another process has it."""
        self.path = path
        self._library = library
        self._state: State = {}
        self._events = 0
        self._writes = 0
        if library is not None:
            library.fake_nvml_calls.restype = ctypes.c_ulonglong

    def become(self, state: State) -> None:
        """Other hardware."""
        self._state = dict(state)
        self._events = 0
        self._write()

    def change(self, changes: State) -> None:
        """The same hardware with changes; None removes a key."""
        self._state |= changes
        self._write()

    def raise_xid(self, gpu: int, *xids: int) -> None:
        """Events, in order."""
        for xid in xids:
            self._events += 1
            self._state[f"event.{self._events}"] = f"{gpu}:{xid}"
        self._write()

    def unload(self) -> None:
        """No driver any more."""
        self.path.unlink()

    def calls(self, function: str | None = None) -> int:
        """The number of calls of a function in this process; None: all of them."""
        assert self._library is not None
        name = None if function is None else function.encode()
        return int(self._library.fake_nvml_calls(name))

    @property
    def references(self) -> int:
        """Initialisations that were not shut down."""
        assert self._library is not None
        return int(self._library.fake_nvml_references())

    def _write(self) -> None:
        draft = self.path.with_suffix(".draft")
        lines = (f"{key}={value}\n" for key, value in self._state.items() if value is not None)
        draft.write_text("".join(lines))
        # The library compares inode and time of the file: an inode is soon used again, and files
        # that are written within a tick of the kernel's clock have the same time.
        self._writes += 1
        os.utime(draft, ns=(self._writes, self._writes))
        draft.replace(self.path)  # whole, or a call reads half of it
