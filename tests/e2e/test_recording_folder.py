"""The folder of recordings under real processes: nothing in it keeps a server from starting, and
two containers share it."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_exporter.recorder.reader import RecordingFile
from tests.e2e.test_recordings import JSON, SIDECAR, listed, saved_by
from tests.replay.flights import Stage
from tests.support.process import Process, forked_kvscope, started
from tests.support.waiting import wait_for

RUN = ("run", "--port", "0", "--no-gpu", "--url", "none", "--record-dir")


def left_in(folder: Path, name: str) -> None:
    """A segment of a process that was killed."""
    scratch = folder.parent / "scratch"
    scratch.mkdir(mode=0o700)
    stage = Stage(scratch)
    stage.recorder.rotate()
    stage.kill()
    (segment,) = scratch.iterdir()
    shutil.copy(segment, folder / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 256 KiB at this place."""
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def ran(folder: Path) -> Process:
    with forked_kvscope(*RUN, str(folder), "--", "sh", "-c", "echo STARTED") as process:
        assert process.wait(60) == 0, process.text
    assert "STARTED" in process.text
    assert "Traceback" not in process.text
    return process


def test_no_file_of_the_folder_keeps_a_command_from_starting(folder: Path, tmp_path: Path) -> None:
    left_in(folder, f"foo-{os.getpid()}-1.kvsr")
    (tmp_path / "secret").write_text("secret")
    (folder / "link-999997-1.kvsr").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe-999996-1.kvsr")
    (folder / "dir-999998-1.kvsr").mkdir()
    (folder / "saved-mine.kvsr").write_text("mine")
    process = ran(folder)
    for name in ("link-999997-1", "pipe-999996-1", "dir-999998-1", "saved-mine"):
        assert f"{name}.kvsr stays as it is: " in process.text
        assert os.path.lexists(folder / f"{name}.kvsr")
    (killed,) = saved_by(folder, "killed")
    assert RecordingFile(killed).opened.server == "llama 3/8b"


def test_a_full_disk_with_left_recordings_keeps_no_command_from_starting(folder: Path) -> None:
    with small_disk(folder):
        left_in(folder, "x-999991-1.kvsr")
        with pytest.raises(OSError, match="No space"), (folder / "fill").open("wb") as file:
            file.write(bytes(1 << 20))
        process = ran(folder)
        assert "x-999991-1.kvsr stays in parts: No space left on device" in process.text
        assert sorted(path.name for path in folder.iterdir()) == ["fill", "x-999991-1.kvsr"]


def test_a_disk_that_is_read_only_keeps_no_command_from_starting(folder: Path) -> None:
    with small_disk(folder):
        left_in(folder, "x-999991-1.kvsr")
        remount = ["mount", "-o", "remount,ro", str(folder)]
        if subprocess.run(remount, capture_output=True).returncode:
            pytest.skip("this user may not mount")
        process = ran(folder)
        assert "the disk is read-only: nothing is recorded yet" in process.text


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused_in_one_line(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with forked_kvscope(*SIDECAR, "--record-dir", str(folder)) as process:
        assert process.wait() == 2
    (line,) = process.lines
    assert f"others may write to it (mode {mode:04o})" in line
    assert str(folder / "kvscope") in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_folder_of_another_user_is_refused_in_one_line(folder: Path) -> None:
    os.chown(folder, 4242, 4242)
    with forked_kvscope(*SIDECAR, "--record-dir", str(folder)) as process:
        assert process.wait() == 2
    (line,) = process.lines
    assert "it belongs to uid 4242, we are 0" in line


def test_two_containers_share_a_folder(folder: Path) -> None:
    """Both are process 1: neither takes the other's segments, nor the other's names."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    inner = [sys.executable, "-m", "kvscope", *SIDECAR, "--record-dir", str(folder)]
    with started([*unshare, *inner]) as first:
        urls = [first.find(r"targets: (\S+)/targets")]
        wait_for(lambda: [*folder.glob("red-*")], "the first records")
        mine = {*folder.glob("red-*")}
        with started([*unshare, *inner]) as second:
            urls.append(second.find(r"targets: (\S+)/targets"))
            wait_for(lambda: len([*folder.glob("red-*")]) > len(mine), "the second records")
            assert mine <= {*folder.glob("red-*")}
            assert listed(urls[1]) == []
            for url in urls:  # in one second, as a signal to both would
                httpx.post(f"{url}/api/recordings", headers=JSON)
            names = [one["name"] for url in urls for one in listed(url)]
            assert len({*names}) == 2
            for process in (first, second):  # what `docker kill` does to both
                process.send(signal.SIGKILL)
                process.wait()
    for name in names:
        assert RecordingFile(folder / f"saved-{name}").problem is None
    with forked_kvscope(*SIDECAR, "--record-dir", str(folder)) as process:
        process.find(r"targets: (\S+)/targets")
        wait_for(lambda: len(saved_by(folder, "killed")) == 2, "both are taken over")


def test_files_are_private_whatever_the_umask(folder: Path, tmp_path: Path) -> None:
    """From the first byte on: looked at while they are written."""
    seen: set[int] = set()
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            stage = Stage(folder)
            stage.tick()
            seen |= {path.stat().st_mode for path in folder.iterdir()}
            saved = stage.flight.save(stage.recorder, "manual", "by hand")
            stage.kill()
            (killed,) = [each for each in Stage(folder).flight.saved() if each.trigger == "killed"]
            for command in ("--openmetrics", "--perfetto", "--html"):
                out = tmp_path / f"{umask}{command}"
                CliRunner().invoke(app, ["rec", "export", str(saved.path), command, str(out)])
                seen |= {out.stat().st_mode} if out.exists() else set()
        finally:
            os.umask(before)
        seen |= {path.stat().st_mode for path in folder.iterdir()}
        for each in (saved, killed):
            assert each.path is not None
            each.path.unlink()
    assert {stat.S_IMODE(mode) for mode in seen} == {0o600}


def test_a_folder_that_is_removed_under_a_recorder_is_told(folder: Path) -> None:
    with forked_kvscope(*SIDECAR, "--record-dir", str(folder)) as process:
        url = process.find(r"targets: (\S+)/targets")
        wait_for(lambda: [*folder.glob("red-*")], "it records")
        shutil.rmtree(folder)
        page = f"{url}/scrape?target=red"
        wait_for(lambda: "kvscope_recording_up 0.0" in httpx.get(page).text, "the page says so")
        folder.mkdir(mode=0o700)
        wait_for(lambda: "kvscope_recording_up 1.0" in httpx.get(page).text, "it goes on")
        assert "kvscope_recording_gaps_total 1.0" in httpx.get(page).text
        time.sleep(0.1)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert saved_by(folder, "exit")
