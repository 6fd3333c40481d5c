"""Host memory of a process and its control group, in both versions, at every level."""

import os
from pathlib import Path

import pytest

from kvscope_exporter.machine.host_memory import host_memory

PID = 7


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc" / str(PID)
    folder.mkdir(parents=True)
    (folder / "statm").write_text("500 300 100 1 0 90 0\n")
    return folder


def group(root: Path, path: str, **files: str) -> None:
    folder = root / "sys" / "fs" / "cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_two(tmp_path: Path, proc: Path) -> None:
    (proc / "cgroup").write_text("0::/app/server\n")
    group(tmp_path, "", cgroup__controllers="memory")
    group(
        tmp_path,
        "app/server",
        memory__max="1000",
        memory__current="800",
        memory__stat="anon 100\ninactive_file 300\nactive_file 150\n",
    )
    memory = host_memory(PID, tmp_path)
    assert memory.resident == 300 * os.sysconf("SC_PAGE_SIZE")
    assert (memory.limit, memory.usage) == (1000, 800)
    assert memory.unreclaimable == 350, "file cache that is read again can be dropped as well"


def test_the_level_with_the_least_room_counts(tmp_path: Path, proc: Path) -> None:
    (proc / "cgroup").write_text("0::/pod/server\n")
    group(tmp_path, "", cgroup__controllers="memory")
    group(tmp_path, "pod/server", memory__max="max", memory__current="100")
    group(tmp_path, "pod", memory__max="500", memory__current="450")
    memory = host_memory(PID, tmp_path)
    assert (memory.limit, memory.usage) == (500, 450)
    assert memory.unreclaimable is None


def test_version_one_and_its_way_to_say_no_limit(tmp_path: Path, proc: Path) -> None:
    (proc / "cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    files = {
        "memory__usage_in_bytes": "700",
        "memory__stat": "total_inactive_file 200\ntotal_active_file 50",
    }
    # Without a namespace of its own a container reads the host's path and has its group on top.
    group(tmp_path, "memory", memory__limit_in_bytes="1000", **files)
    memory = host_memory(PID, tmp_path)
    assert (memory.limit, memory.usage) == (1000, 700)
    assert memory.unreclaimable == 450
    group(tmp_path, "memory", memory__limit_in_bytes="9223372036854771712", **files)
    memory = host_memory(PID, tmp_path)
    assert (memory.limit, memory.usage) == (None, 700)


def test_what_is_not_reported_is_unknown(tmp_path: Path, proc: Path) -> None:
    (proc / "statm").unlink()
    memory = host_memory(PID, tmp_path)
    assert (memory.resident, memory.limit, memory.usage) == (None, None, None)
    (proc / "cgroup").write_text("0::/gone\n")
    assert host_memory(PID, tmp_path).usage is None
    group(tmp_path, "", cgroup__controllers="memory")
    assert host_memory(PID, tmp_path).usage is None


def test_this_process_has_a_size() -> None:
    resident = host_memory(os.getpid()).resident
    assert resident is not None
    assert resident > 2**20
