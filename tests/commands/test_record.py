"""`kvscope rec save` as a user runs it: what it writes is a recording, and says what it lacks."""

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.whatif.batches import Batches
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch
from kvscope_events.wire.publisher import WirePublisher
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.stream_file import StreamFile
from kvscope_exporter.sources.pipeline import InProcessSource
from tests.events.producers import Producer, steps_of
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


@pytest.fixture
def publishing(endpoint: str) -> Iterator[Producer]:
    producer = Producer()
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    producer.begin()
    yield producer
    publisher.stop()


def record(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rec", "save", *arguments], env={"COLUMNS": "160"})


def steps_in(file: Path) -> list[int]:
    recording = Batches(file)
    steps = []
    for _, batch, lost in recording:
        assert lost == 0
        steps += steps_of(batch)
    return steps


def test_what_was_published_is_in_the_file(
    publishing: Producer, endpoint: str, tmp_path: Path
) -> None:
    publishing.step(7)  # before it came: the publisher still has them
    file = tmp_path / "run.kvsr"
    done = record(endpoint, str(file), "--duration", "0.8")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{file}: 8 batches, ")
    assert len(done.output.splitlines()) == 1
    assert steps_in(file) == list(range(7))


def test_the_file_is_private_whatever_the_umask(
    publishing: Producer, endpoint: str, tmp_path: Path
) -> None:
    publishing.step(1)
    file = tmp_path / "run.kvsr"
    before = os.umask(0)
    try:
        assert record(endpoint, str(file), "--duration", "0.5").exit_code == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_the_last_line_says_how_far_back_the_backlog_reaches(
    publishing: Producer, endpoint: str, tmp_path: Path
) -> None:
    publishing.step(1)
    time.sleep(2.5)
    publishing.step(1)
    done = record(endpoint, str(tmp_path / "run.kvsr"), "--duration", "0.5")
    assert done.exit_code == 0, done.output
    found = re.search(r"began (\d) s earlier, with the publisher's backlog", done.output)
    assert found is not None, done.output
    assert int(found[1]) == 2


@pytest.mark.slow
def test_ctrl_c_ends_it_with_one_line(publishing: Producer, endpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "run.kvsr"
    with forked_kvscope("rec", "save", endpoint, str(file)) as process:
        wait_for(lambda: file.exists() and file.stat().st_size > 0, "it records", 30)
        publishing.step(3)
        wait_for(lambda: len(steps_in(file)) == 3, "all of it is in the file")
        process.send(signal.SIGINT)
        assert process.wait() == 0
    assert len(process.lines) == 1, process.text
    assert process.text.startswith(f"{file}: 4 batches, ")
    assert steps_in(file) == [0, 1, 2]


def test_it_ends_before_the_file_is_too_large(
    publishing: Producer, endpoint: str, tmp_path: Path
) -> None:
    publishing.step(200, padding=1_000)
    file = tmp_path / "run.kvsr"
    done = record(endpoint, str(file), "--max-bytes", "5000")
    assert done.exit_code == 0, done.output
    assert "stopped at 5000" in done.output
    assert 3_000 < file.stat().st_size <= 5_000
    steps = steps_in(file)
    assert steps == list(range(len(steps)))
    assert 3 < len(steps) < 200


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"endpoint": "qwen.sock"}, "not an endpoint of the wire"),
        ({"endpoint": "ipc:///run/kvscope/vllm/*"}, "give one socket"),
        ({"--max-bytes": "80G"}, "--max-bytes"),
        ({"--max-bytes": "10"}, "even one batch is larger than 10"),
        ({"file": "missing/run.kvsr"}, "cannot write: No such file"),
        ({"file": "there"}, "file exists"),
    ],
    ids=["endpoint", "folder", "unit", "tiny", "path", "exists"],
)
def test_what_makes_no_sense_is_one_line(
    publishing: Producer, endpoint: str, tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    (tmp_path / "there").write_text("mine")
    file = tmp_path / changes.get("file", "run.kvsr")
    size = changes.get("--max-bytes", "1MiB")
    done = record(
        changes.get("endpoint", endpoint), str(file), "--duration", "1", "--max-bytes", size
    )
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1), done.output
    assert done.output.startswith("kvscope: ")
    assert says in done.output
    assert not (tmp_path / "run.kvsr").exists()
    assert (tmp_path / "there").read_text() == "mine"


def test_where_nothing_publishes_there_is_no_file(endpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "run.kvsr"
    done = record(endpoint, str(file), "--duration", "0.3")
    assert done.exit_code == 2
    assert "nothing came" in done.output
    assert not file.exists()


class Disk:
    """Takes half of a chunk, and then nothing."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.fileno = file.fileno
        self.close = file.close
        self.closed = False
        self._full = False

    def write(self, data: memoryview) -> int:
        if self._full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._full = True
        return self._file.write(data[: len(data) // 2])


def record_four(file: Path, spoil: Callable[[StreamFile], object]) -> None:
    """Record three batches, and then one more."""
    source = InProcessSource(EventBus().subscribe())
    with StreamFile(file, source, 1 << 20, Clock()) as recording:
        for seq in range(3):
            assert recording.add(Batch(seq, 0, []), 0)
        recording.write()
        spoil(recording)
        assert recording.add(Batch(3, 0, []), 0)
        recording.write()


def test_a_full_disk_leaves_whole_chunks(tmp_path: Path) -> None:
    def fill(recording: StreamFile) -> None:
        segment = recording._segment
        assert segment._file is not None
        segment._file = Disk(segment._file)  # type: ignore[assignment]

    file = tmp_path / "run.kvsr"
    with pytest.raises(OSError, match="No space"):
        record_four(file, fill)
    found = Batches(file)
    assert [batch.seq for _, batch, _ in found] == [0, 1, 2]
    assert found.problem == "the recorder was cut off: its last second may be missing"


def test_a_file_that_was_removed_is_said_and_not_written_on(tmp_path: Path) -> None:
    file = tmp_path / "run.kvsr"
    with pytest.raises(OSError, match="the file was removed"):
        record_four(file, lambda _: file.unlink())
