"""Recordings that were cut, put together, or made to harm: read up to there, in bounded memory."""

import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import zstandard
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_events.events import Batch, StepCompleted
from kvscope_exporter.recorder import format as layout
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.format import (
    BEGINS,
    ENDS,
    MAX_CHUNK_BYTES,
    RecordingError,
    pack_chunk,
)
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import PageRecord, StreamStart
from kvscope_exporter.replay.playback import Playback
from tests.events.producers import SNAPSHOT, hello
from tests.replay.simulated import BEGINS_NS, heard, opened, record_chat, took
from tests.support.process import ROOT

SECOND = 10**9
MEGABYTES = 700
"""Most that any command may take of any file here; one chunk of the largest size is 128 MiB."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "load.kvsr"
    record_chat(path, 20, num_blocks=90, rate=2.0)
    return path


def test_cut_at_a_thousand_places_it_is_read_up_to_the_cut(whole: Path, tmp_path: Path) -> None:
    content, random = whole.read_bytes(), Random(1)
    all_chunks = RecordingFile(whole).chunks
    cut = tmp_path / "cut.kvsr"
    opened_files = 0
    for place in sorted(random.sample(range(len(content)), 1000)):
        cut.write_bytes(content[:place])
        if place < all_chunks[0].offset + all_chunks[0].stored_bytes:
            with pytest.raises(RecordingError, match=r"^[^\n]*\Z"):
                RecordingFile(cut)
            continue
        file = RecordingFile(cut)
        opened_files += 1
        assert file.problem is not None
        inside = [c for c in all_chunks if c.offset + c.stored_bytes <= place]
        assert file.chunks == inside
    assert opened_files > 950


def test_a_byte_that_was_changed_anywhere_in_a_chunk_is_noticed(tmp_path: Path) -> None:
    """Also in the times of its header, which a replay goes by."""
    whole = pack_chunk([b"a record"], BEGINS | ENDS, BEGINS_NS, BEGINS_NS + SECOND)
    changed = tmp_path / "changed.kvsr"
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0xFF
        changed.write_bytes(content)
        with pytest.raises(RecordingError):
            _records(changed)
    changed.write_bytes(whole)
    assert _records(changed) == [b"a record"]


def _records(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        found = []
        for chunk in layout.read_chunks(file):
            file.seek(chunk.offset)
            found += chunk.records(file.read(chunk.stored_bytes))
        return found


NIGHTLY = pytest.mark.nightly
COMMANDS = [
    ["rec", "play"],
    ["why"],
    ["rec", "export", "--openmetrics", "OUT", "--step", "1"],
    ["rec", "export", "--perfetto", "OUT"],
    ["rec", "export", "--parquet", "DIR"],
    ["rec", "export", "--html", "OUT"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "".join(command[:2]))
@pytest.mark.parametrize("share", [0.5, *(pytest.param(n, marks=NIGHTLY) for n in (0.03, 0.97))])
def test_every_command_reads_a_cut_recording_and_says_so(
    whole: Path, tmp_path: Path, command: list[str], share: float
) -> None:
    content = whole.read_bytes()
    (tmp_path / "cut.kvsr").write_bytes(content[: int(len(content) * share)])
    result = run(command, tmp_path / "cut.kvsr", tmp_path)
    assert result.exit_code == 0, result.output
    assert "cut off" in result.stderr + result.stdout


def run(command: list[str], recording: Path, folder: Path) -> Result:
    names = {"OUT": str(folder / "out"), "DIR": str(folder / "tables")}
    words = [names.get(word, word) for word in command]
    verbs = 2 if words[0] == "rec" else 1
    return CliRunner().invoke(app, [*words[:verbs], str(recording), *words[verbs:]])


def spliced(whole: Path) -> bytes:
    """The second half, then the first, of another server."""
    file, content = RecordingFile(whole), whole.read_bytes()
    middle = file.chunks[len(file.chunks) // 2].offset - layout.HEADER_BYTES
    other = records.encode(opened("another"))
    return (
        pack_chunk([other], BEGINS, BEGINS_NS, BEGINS_NS) + content[middle:] + content[:middle] * 2
    )


def backwards(_: Path) -> bytes:
    """Every clock runs back, and a page claims to be of the far future."""
    entries: list[records.Record] = [opened(), StreamStart(0, "inprocess", "", 0)]
    step = StepCompleted(10**18, 1, 0, 0, 0, 1, None, 1, 0, 0, [1], [], 1, 0)
    for seq in range(50):
        at_ns = (50 - seq) * SECOND
        events = [hello(), SNAPSHOT, step] if not seq else [step]
        entries.append(took(Batch(seq, at_ns, events, BEGINS_NS + at_ns, at_ns)))
        entries.append(heard(at_ns))
    entries.append(PageRecord(1, 1 << 61, [(0, 10)], None, False, [], None, None))
    encoded = [records.encode(each) for each in entries]
    return pack_chunk(encoded, BEGINS | ENDS, BEGINS_NS + 50 * SECOND, BEGINS_NS)


def apart(whole: Path) -> bytes:
    """Half a century lies between its segments."""
    encoded = [records.encode(opened())]
    return whole.read_bytes() + pack_chunk(encoded, BEGINS | ENDS, BEGINS_NS, BEGINS_NS)


def foreign(whole: Path) -> bytes:
    """Headers of ours around records that are something else."""
    return pack_chunk([records.encode(opened()), b"\xc1", b"PAR1" * 9], BEGINS, 0, 1)


def endless(_: Path) -> bytes:
    """Its one record fills a chunk of the largest size with nothing."""
    head = records.encode(opened())
    raw = len(head).to_bytes(4, "little") + head
    raw += (MAX_CHUNK_BYTES - len(raw) - 4).to_bytes(4, "little")
    return _chunk(raw + bytes(MAX_CHUNK_BYTES - len(raw)))


def crowded(_: Path) -> bytes:
    """A chunk with half a million records that say nothing."""
    head = records.encode(opened())
    entered = records.encode(StreamStart(1, "inprocess", "", 0))
    raw = len(head).to_bytes(4, "little") + head
    one = len(entered).to_bytes(4, "little") + entered
    return _chunk(raw + one * (MAX_CHUNK_BYTES // 8 // len(one)))


def _chunk(raw: bytes) -> bytes:
    stored = zstandard.ZstdCompressor(level=1).compress(raw)
    header = layout.pack_header(BEGINS | ENDS, len(raw), 0, SECOND, stored)
    return header + stored


@pytest.fixture
def strange(request: pytest.FixtureRequest, whole: Path, tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "strange.kvsr"
    path.write_bytes(request.param(whole))
    return path, request.param.__name__


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "".join(command[:2]))
@pytest.mark.parametrize(
    "strange",
    [spliced, foreign, *(pytest.param(made, marks=NIGHTLY) for made in (backwards, apart))],
    indirect=True,
)
def test_strange_recordings_are_read_or_refused_in_one_line(
    strange: tuple[Path, str], tmp_path: Path, command: list[str]
) -> None:
    path, _ = strange
    result = run(command, path, tmp_path)
    assert result.exit_code in (0, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output + result.stderr
    if result.exit_code:
        assert len(result.stderr.splitlines()) <= 2


@pytest.mark.nightly
@pytest.mark.parametrize("strange", [endless, crowded], indirect=True)
def test_a_bomb_takes_a_bounded_amount_of_memory(strange: tuple[Path, str], tmp_path: Path) -> None:
    path, name = strange
    assert path.stat().st_size < 100_000
    out = ["--perfetto", str(tmp_path / "out"), "--parquet", str(tmp_path / "tables")]
    for command in (["why", str(path)], ["rec", "export", str(path), *out]):
        done = subprocess.run(
            [sys.executable, "-m", "kvscope", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_limit,
        )
        assert done.returncode in (0, 2), f"{name}: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 2


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEGABYTES << 20, MEGABYTES << 20))


def test_a_player_survives_what_a_playback_survives(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "strange.kvsr"
    path.write_bytes(backwards(whole))
    playback = Playback(RecordingFile(path))
    for moment in (0, BEGINS_NS, 1 << 61):
        playback.to(moment)
        playback.exporter.render()
