"""The machine around the GPUs: device files, container, pid namespace, control group."""

import os
from collections.abc import Iterator
from pathlib import Path

from kvscope.doctor import Finding
from kvscope_exporter import words
from kvscope_exporter.machine.host_memory import host_memory, read_text

_DEVICE_FILES = ("nvidiactl", "nvidia[0-9]*", "nvidia-uvm")
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io")


def has_nvidia(root: Path = Path("/")) -> bool:
    """Whether NVIDIA's driver is loaded, or this container was given its devices."""
    return bool(_device_files(root)) or (root / "proc" / "driver" / "nvidia").exists()


def host_findings(root: Path = Path("/")) -> Iterator[Finding]:
    """Findings that need no NVML. root: the file system to read."""
    yield _permissions(root)
    yield _namespace(root)
    yield _limit(root)


def _permissions(root: Path) -> Finding:
    files = _device_files(root)
    if not files:
        return Finding(
            "device files",
            "note",
            "no /dev/nvidia*: this system has no GPU, or none was given to this container",
        )
    closed = [path.name for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        who = f"uid {os.getuid()}"
        text = (
            f"{who} may not use /dev/{', /dev/'.join(closed)}: add it to the group of these files"
        )
        return Finding("device files", "problem", text)
    return Finding("device files", "ok", f"{len(files)} in /dev, readable and writable")


def _namespace(root: Path) -> Finding:
    contained = any((root / mark).exists() for mark in _CONTAINER_MARKS)
    status = read_text(root / "proc" / "self" / "status") or ""
    line = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    pids = line.split()[1:]
    if len(pids) > 1:
        text = (
            f"nested, this process has the pids {' → '.join(pids)} from the outside in: processes "
            "outside the namespace are not visible here"
        )
        return Finding("pid namespace", "note", text)
    if contained:
        text = (
            "in a container: processes outside may be hidden, and the driver may list host pids; "
            "share the pid namespace (hostPID, shareProcessNamespace, --pid=host) to match them"
        )
        return Finding("pid namespace", "note", text)
    return Finding("pid namespace", "ok", "not in a container")


def _limit(root: Path) -> Finding:
    memory = host_memory(os.getpid(), root)
    if memory.limit is None:
        return Finding("host memory", "ok", "no control group limits it")
    used = words.size(memory.unreclaimable)
    text = f"the control group is limited to {words.size(memory.limit)} and uses {used}"
    return Finding("host memory", "ok", text)


def _device_files(root: Path) -> list[Path]:
    return sorted(path for pattern in _DEVICE_FILES for path in (root / "dev").glob(pattern))
