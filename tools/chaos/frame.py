"""The frame of all chaos: figures of processes and what they may grow by, threads beside it."""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

Say = Callable[[str], None]
JOIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures at one moment, or the largest of several moments."""

    rss_mib: int
    """Memory of the process and its children."""
    descriptors: int
    """Open files of the process alone, like the threads."""
    threads: int

    def more(self, before: "Figures", where: str = "at the end", **limits: int) -> list[str]:
        """By which limits, named like the figures, they are more than before."""
        found = []
        for field in fields(self):
            limit = limits.get(field.name)
            more = getattr(self, field.name) - getattr(before, field.name)
            if limit is not None and more > limit:
                words = {"rss_mib": "MiB of memory"}.get(field.name, field.name)
                found.append(f"{more} more {words} {where}, limit {limit}")
        return found

    def at_most(self, other: "Figures") -> "Figures":
        """The larger ones, each by itself."""
        names = [field.name for field in fields(self)]
        return Figures(**{name: max(getattr(self, name), getattr(other, name)) for name in names})


def figures_of(pid: int) -> Figures:
    """Raises OSError if the process has ended."""
    command = _read(pid, "cmdline")
    # A child that has not yet begun its own program shows the memory of its parent.
    others = [child for child in _descendants(pid) if _read(child, "cmdline") != command]
    return Figures(
        rss_mib=sum(_status(one, "VmRSS") for one in (pid, *others)) // 1024,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=_status(pid, "Threads"),
    )


def _descendants(pid: int) -> Iterable[int]:
    """A child that ends meanwhile is left out."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, _read(pid, f"task/{task.name}/children").split()):
            yield child
            yield from _descendants(child)


def _read(pid: int, name: str) -> str:
    """Empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _status(pid: int, name: str) -> int:
    """A number of /proc/PID/status, sizes in KiB; 0 if the process has ended."""
    _, _, rest = _read(pid, "status").partition(f"{name}:")
    return int(rest.split(maxsplit=1)[0]) if rest else 0


class AllAlong:
    """Threads that work from construction until `stop`; what they share, `lock` protects."""

    def __init__(self, *work: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
