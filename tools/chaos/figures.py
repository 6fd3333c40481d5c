"""Memory, descriptors and threads of a process and its children, read from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_MIB_IN_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures at one moment, or the largest of several moments."""

    rss_mib: int
    """Memory of the process and its children."""
    descriptors: int
    """Open files of the process alone, like the threads."""
    threads: int


def figures_of(pid: int) -> Figures:
    """Raises OSError if the process has ended."""
    process = Path("/proc", str(pid))
    command = _command(pid)
    # A child that has not yet begun its own program shows the memory of its parent.
    others = [child for child in _children(pid) if _command(child) != command]
    rss = sum(_status(one).get("VmRSS", 0) for one in (pid, *others))
    return Figures(
        rss_mib=rss // _MIB_IN_KIB,
        descriptors=len(os.listdir(process / "fd")),
        threads=_status(pid)["Threads"],
    )


def _children(pid: int) -> list[int]:
    """All descendants. A child that ends meanwhile is left out."""
    found: list[int] = []
    for task in Path("/proc", str(pid), "task").iterdir():
        try:
            children = [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _descendants(pid: int) -> list[int]:
    try:
        return _children(pid)
    except OSError:
        return []


def _command(pid: int) -> bytes:
    """Its command line; empty if the process has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""


def _status(pid: int) -> dict[str, int]:
    """The numbers of /proc/PID/status, sizes in KiB; empty if the process has ended."""
    try:
        lines = Path("/proc", str(pid), "status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split(":", 1) for line in lines)
    return {
        name: int(words[0])
        for name, text in fields
        if (words := text.split()) and words[0].isdecimal()
    }
