"""The folder of a run: one path for one port, private, and never another user's."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.run.folder import run_folder
from kvscope_events.wire.endpoint import EndpointError


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: those of sockets are limited."""
    folder = Path(f"/tmp/kvscope-folder-{os.getpid()}")
    monkeypatch.setenv("KVSCOPE_RUN_DIR", str(folder))
    yield folder
    assert [path for path in folder.iterdir() if path.name.startswith("run-8010")] == []
    folder.rmdir()


def test_the_same_port_gives_the_same_path_again(base: Path) -> None:
    for _ in range(2):
        with run_folder(8010) as folder:
            assert folder == base / "run-8010"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE((folder / "sockets").stat().st_mode) == 0o700
            assert (folder / "plugin" / "kvscope_events" / "events.py").is_file()
        assert not folder.exists()


def test_two_at_once_do_not_share_one(base: Path) -> None:
    with run_folder(8010) as first, run_folder(8010) as second, run_folder(0) as any_port:
        assert len({first, second, any_port}) == 3
        assert {path.parent for path in (first, second, any_port)} == {base}
    assert not second.exists()


def test_what_a_killed_run_left_behind_is_cleared(base: Path) -> None:
    left = base / "run-8010" / "sockets"
    left.mkdir(parents=True, mode=0o700)
    base.chmod(0o700)
    (left / "old").write_text("")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left / "engine-0.sock"))
    with run_folder(8010) as folder:
        assert folder == base / "run-8010"
        assert list((folder / "sockets").iterdir()) == []


def test_a_server_that_outlived_its_run_keeps_its_folder(base: Path) -> None:
    left = base / "run-8010" / "sockets"
    left.mkdir(parents=True, mode=0o700)
    base.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(left / "engine-0.sock"))
        live.listen()
        with run_folder(8010) as folder:
            assert folder != base / "run-8010"
        assert (left / "engine-0.sock").exists()
    with run_folder(8010) as folder:
        assert folder == base / "run-8010"


def test_a_directory_that_is_too_deep_or_not_ours_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.mkdir(mode=0o700)
    monkeypatch.setenv("KVSCOPE_RUN_DIR", str(base / ("deep" * 20)))
    with pytest.raises(EndpointError, match="a unix socket takes 107"), run_folder(8010):
        pass
    open_to_all = base / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("KVSCOPE_RUN_DIR", str(open_to_all))
    with pytest.raises(EndpointError, match="others may write"), run_folder(8010):
        pass
    open_to_all.rmdir()
