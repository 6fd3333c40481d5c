"""Host memory of a process and of its control group, read from /proc and /sys."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


def read_text(path: Path) -> str | None:
    """The content; None if the file is missing or not readable."""
    try:
        return path.read_text()
    except OSError:
        return None


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED = 2**60
"""Version 1 says "no limit" with a number near 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Figures in bytes; None: not known. A group's are those of its level with the least room."""

    resident: int | None
    limit: int | None
    usage: int | None
    """Usage without inactive file cache: the figure by which a kubelet evicts."""
    unreclaimable: int | None
    """Usage without any file cache: when it reaches the limit, the kernel kills a process."""

    @property
    def room(self) -> int | None:
        """Bytes left before the kernel kills a process; None: not known, or no limit."""
        used = self.usage if self.unreclaimable is None else self.unreclaimable
        return None if self.limit is None or used is None else self.limit - used


@dataclass(frozen=True, slots=True)
class Available:
    """Memory of the whole machine, in bytes."""

    total: int
    available: int
    """Memory that the kernel can provide without swapping."""


@dataclass(frozen=True, slots=True)
class _Names:
    """File and field names of one version of control groups."""

    limit: str
    usage: str
    inactive_file: str
    active_file: str


_V2 = _Names("memory.max", "memory.current", "inactive_file", "active_file")
_V1 = _Names(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
    "total_active_file",
)


@dataclass(frozen=True, slots=True)
class _Level:
    """The process's control group, or one of its parents."""

    limit: int | None
    usage: int
    unreclaimable: int | None

    @property
    def room(self) -> int:
        """Bytes left before the kernel kills a process."""
        used = self.usage if self.unreclaimable is None else self.unreclaimable
        return (self.limit or 0) - used


def host_memory(pid: int, root: Path = Path("/")) -> HostMemory:
    """Figures of a process that we may inspect. root: the file system to read."""
    found = _group(root / "proc" / str(pid) / "cgroup", root / "sys" / "fs" / "cgroup")
    return HostMemory(
        resident=_resident(root / "proc" / str(pid) / "statm"),
        limit=None if found is None else found.limit,
        usage=None if found is None else found.usage,
        unreclaimable=None if found is None else found.unreclaimable,
    )


def available_memory(root: Path = Path("/")) -> Available | None:
    """Memory of this machine; None if its kernel does not report it."""
    sizes = {}
    for line in (read_text(root / "proc" / "meminfo") or "").splitlines():
        name, _, size = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            sizes[name] = int(size.split()[0]) * 1024
    if len(sizes) < 2:
        return None
    return Available(sizes["MemTotal"], sizes["MemAvailable"])


def sum_processes(processes: Sequence[HostMemory]) -> HostMemory:
    """Several processes of one engine: their resident memory, and the group with the least room.

    Pages that they share count for each of them.
    """
    residents = [process.resident for process in processes]
    known = [resident for resident in residents if resident is not None]
    limited = [process for process in processes if process.room is not None]
    group = min(limited, key=lambda process: process.room or 0) if limited else processes[0]
    return replace(group, resident=sum(known) if len(known) == len(residents) else None)


def _resident(statm: Path) -> int | None:
    text = read_text(statm)
    return None if text is None else int(text.split()[1]) * _PAGE_BYTES


def _group(membership: Path, mount: Path) -> _Level | None:
    """The tightest level from the process's group up."""
    text = read_text(membership)
    for line in (text or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return _tightest(mount / "memory", path, _V1)
        if not controllers and (mount / "cgroup.controllers").exists():
            return _tightest(mount, path, _V2)
    return None


def _tightest(top: Path, path: str, names: _Names) -> _Level | None:
    """The level with the least room.

    In a container without a cgroup namespace the path is the host's; levels missing here are
    skipped.
    """
    levels = []
    folder = top / path.lstrip("/")
    while True:
        level = _level(folder, names)
        if level is not None:
            levels.append(level)
        if folder == top:
            break
        folder = folder.parent
    limited = [level for level in levels if level.limit is not None]
    if limited:
        return min(limited, key=lambda level: level.room)
    return levels[0] if levels else None


def _level(folder: Path, names: _Names) -> _Level | None:
    usage = read_text(folder / names.usage)
    if usage is None:  # the top of version 2 has no usage
        return None
    limit = read_text(folder / names.limit)
    bounded = limit is not None and limit.strip() != "max" and int(limit) < _UNLIMITED
    used = int(usage)
    inactive = _stat(folder / "memory.stat", names.inactive_file)
    active = _stat(folder / "memory.stat", names.active_file)
    return _Level(
        limit=int(limit) if limit is not None and bounded else None,
        usage=used,
        unreclaimable=None if inactive is None or active is None else used - inactive - active,
    )


def _stat(path: Path, name: str) -> int | None:
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
