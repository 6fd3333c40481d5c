"""Host memory of a process and of its control group, from /proc and /sys. None: not known."""

import os
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED = 2**60
"""Version 1 says "no limit" with a number near 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes. The group's figures belong together: those of the level that has the least room."""

    resident: int | None
    limit: int | None
    usage: int | None
    working_set: int | None
    """Usage less inactive file cache: what counts when the kernel looks for a victim."""


@dataclass(frozen=True, slots=True)
class _Names:
    """Files of one version of control groups."""

    limit: str
    usage: str
    inactive_file: str


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def host_memory(pid: int, root: Path = Path("/")) -> HostMemory:
    """Of a process that this one may look at; root: another one for tests."""
    found = _group(root / "proc" / str(pid) / "cgroup", root / "sys" / "fs" / "cgroup")
    limit = usage = working_set = None
    if found is not None:
        limit, usage, working_set = found
    return HostMemory(
        resident=_resident(root / "proc" / str(pid) / "statm"),
        limit=limit,
        usage=usage,
        working_set=working_set,
    )


def _resident(statm: Path) -> int | None:
    text = _text(statm)
    return None if text is None else int(text.split()[1]) * _PAGE_BYTES


def _group(membership: Path, mount: Path) -> tuple[int | None, int, int | None] | None:
    """Limit, usage and working set of the tightest level from the process's group up."""
    text = _text(membership)
    for line in (text or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return _tightest(mount / "memory", path, _V1)
        if not controllers and (mount / "cgroup.controllers").exists():
            return _tightest(mount, path, _V2)
    return None


def _tightest(top: Path, path: str, names: _Names) -> tuple[int | None, int, int | None] | None:
    """The path is that of the host where the container has no namespace of its own: then the
    levels that are not here are skipped."""
    levels = []
    folder = top / path.lstrip("/")
    while True:
        level = _level(folder, names)
        if level is not None:
            levels.append(level)
        if folder == top:
            break
        folder = folder.parent
    limited = [level for level in levels if level[0] is not None]
    return min(limited, key=_room) if limited else (levels[0] if levels else None)


def _level(folder: Path, names: _Names) -> tuple[int | None, int, int | None] | None:
    usage = _text(folder / names.usage)
    if usage is None:  # the top of version 2 has no usage
        return None
    limit = _text(folder / names.limit)
    bounded = limit is not None and limit.strip() != "max" and int(limit) < _UNLIMITED
    cache = _stat(folder / "memory.stat", names.inactive_file)
    return (
        int(limit) if limit is not None and bounded else None,
        int(usage),
        None if cache is None else int(usage) - cache,
    )


def _room(level: tuple[int | None, int, int | None]) -> int:
    limit, usage, working_set = level
    return (limit or 0) - (usage if working_set is None else working_set)


def _stat(path: Path, name: str) -> int | None:
    for line in (_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


def _text(path: Path) -> str | None:
    """None where the file is not there, or not for us."""
    try:
        return path.read_text()
    except OSError:
        return None
