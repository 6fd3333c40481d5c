"""Foreign files: anything else is refused at once, and no writer keeps us waiting."""

import os
import threading
import time
from pathlib import Path

import pytest

import kvscope_exporter.files.foreign
from kvscope_exporter.files.foreign import open_regular, read_small

SOON_SECONDS = 30.0
"""On a busy machine."""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with open_regular(tmp_path / "file") as opened:
        assert opened.read() == b"x" * 100_000
    assert read_small(tmp_path / "file", 200_000) == b"x" * 100_000
    assert len(read_small(tmp_path / "file", 99_999)) == 100_000, "one more says that it is larger"


@pytest.mark.parametrize("read", [open_regular, lambda path: read_small(path, 10)])
@pytest.mark.parametrize(("name", "kind"), [("/dev/zero", "a device"), ("/tmp", "a folder")])
def test_what_is_no_file_is_named(read: object, name: str, kind: str) -> None:
    with pytest.raises(OSError, match=f"{kind}, not a file"):
        read(Path(name))  # type: ignore[operator]


def test_a_pipe_without_a_writer_is_refused_at_once(pipe: Path) -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match="a pipe, not a file"):
        open_regular(pipe)
    with pytest.raises(OSError, match="nothing writes to"):
        read_small(pipe, 10)
    assert time.monotonic() - began < SOON_SECONDS


def test_what_a_slow_writer_sends_through_a_pipe_is_read(pipe: Path) -> None:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that the writer can open it
    writer = os.open(pipe, os.O_WRONLY)

    def write() -> None:
        for part in (b"ab", b"cd"):
            time.sleep(0.2)
            os.write(writer, part)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    assert read_small(pipe, 10) == b"abcd"
    thread.join()
    os.close(reader)


def test_a_writer_that_sends_nothing_is_not_waited_for(
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvscope_exporter.files.foreign, "PIPE_SECONDS", 0.2)
    keeper = os.open(pipe, os.O_RDWR)
    with pytest.raises(OSError, match=r"nothing came for 0\.2 s"):
        read_small(pipe, 10)
    os.close(keeper)
