"""Costs of the flight recorder, and of what is made from an hour of its recording.

    python -m benchmarks.flight_cost [HOUR.kvsr]

Throughput is compared in CPU time of the process, in pairs of rounds that alternate between two
engines, of which one is recorded; so is everything else, since other programs take turns on the
cores. The hour is that of an engine in simulated time, 23 batches a second with hits and evictions;
it is made first, unless a file that an earlier run has kept is named. Replays and exports
run in processes of their own, one after the other; their memory is what they add to it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import BinaryIO

from benchmarks.engine_stream import block_events
from benchmarks.offline import OfflineEngine
from benchmarks.report import environment
from exporter.flight.reader import RecordingFile
from exporter.playback.playback import Playback, index_of
from kvscope.exporting.html import write_html
from kvscope.exporting.parquet import write_tables
from kvscope.exporting.perfetto import write_trace
from kvscope.replaying.openmetrics import Pages
from kvscope.replaying.player import Player
from tests.playback.recorded import make_recorder
from tests.playback.simulated import batches_of, record_chat

SEQUENCES = 8
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
ROUNDS = 24
SECONDS = 3600.0
PAGE_STEP_NS = 15 * 10**9


def throughput() -> dict[str, float]:
    """CPU time of a round that is not recorded over that of one that is, medians of pairs; and the
    recorder's own part of the CPU time, which noise does not hide."""
    recorder = make_recorder(None)
    writing, all_rounds = 0.0, 0.0
    recorded = OfflineEngine("demo", 1024, SEQUENCES, observed=True, recorder=recorder)
    silent = OfflineEngine("demo", 1024, SEQUENCES, observed=True)
    random = Random(1)
    ratios = []
    for number in range(ROUNDS + 1):
        batch = [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(SEQUENCES)]
        spent: dict[int, float] = {}
        for engine in (recorded, silent) if number % 2 else (silent, recorded):
            began = time.process_time()
            engine.run(batch, OUTPUT_TOKENS)
            engine.render()
            if engine is recorded:
                before = time.thread_time()
                recorder.write()
                writing += time.thread_time() - before
            spent[id(engine)] = time.process_time() - began
        all_rounds += spent[id(recorded)]
        if number:  # the first round is warm-up
            ratios.append(spent[id(silent)] / spent[id(recorded)])
    assert recorded.exporter is not None
    (target,) = recorded.exporter.targets
    own = writing + target.pipeline.spent_seconds["recorder"]
    recorded.close()
    silent.close()
    return {
        "ratio": median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "own_share": own / all_rounds,
    }


def size(recording: Path) -> dict[str, float]:
    batches = list(batches_of(recording))
    named = block_events(batches)
    stored = recording.stat().st_size
    return {
        "megabytes": stored / 1e6,
        "batches": len(batches),
        "block_events": named,
        "bytes_a_block_event": stored / named,
    }


def open_it(recording: Path, _: Path) -> None:
    index_of(RecordingFile(recording))


def play(recording: Path, _: Path) -> None:
    file = RecordingFile(recording)
    Playback(file).to(file.ends_ns)


def seek(recording: Path, _: Path) -> dict[str, float]:
    """CPU seconds of the player's thread until the page of a random moment is there."""
    player = Player(recording)
    random = Random(2)
    began = time.process_time()
    player.start()
    while player.preparing:
        time.sleep(0.1)
    prepared = time.process_time() - began
    spent = []
    for _number in range(6):
        moment = random.randrange(player.file.begins_ns, player.file.ends_ns)
        began = time.thread_time()
        player.seek(moment)
        player.render()
        spent.append(time.thread_time() - began)
        while player.preparing:
            time.sleep(0.1)
    player.close()
    return {"prepared": prepared, "median": median(spent), "longest": max(spent)}


def _written(path: Path, write: Callable[[BinaryIO], Iterator[float]]) -> None:
    with path.open("wb") as out:
        for _ in write(out):
            pass


def openmetrics(recording: Path, folder: Path) -> None:
    pages = Pages({})
    for _ in pages.read(Playback(RecordingFile(recording)), PAGE_STEP_NS):
        pass
    (folder / "hour.om").write_bytes(pages.text())


def perfetto(recording: Path, folder: Path) -> None:
    _written(folder / "hour.pftrace", lambda out: write_trace(RecordingFile(recording), out))


def parquet(recording: Path, folder: Path) -> None:
    for _ in write_tables(RecordingFile(recording), folder):
        pass


def html(recording: Path, folder: Path) -> None:
    file = RecordingFile(recording)
    _written(folder / "hour.html", lambda out: write_html(file, index_of(file), file.ends_ns, out))


def _alone(work: Callable[[Path, Path], object], recording: Path, folder: Path) -> object:
    """In a process of its own: CPU seconds, further megabytes at most, and what work returned."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, recording, folder))


def _measured(work: Callable[[Path, Path], object], recording: Path, folder: Path) -> object:
    before, began = _most_megabytes(), time.process_time()
    result = work(recording, folder)
    spent = time.process_time() - began
    megabytes = _most_megabytes() - before
    return {"cpu_seconds": spent, "megabytes": megabytes, "result": result}


def _most_megabytes() -> float:
    """Most that this process has held so far."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


def main() -> None:
    rows: dict[str, object] = {"throughput": throughput()}
    print(f"throughput {rows['throughput']}", file=sys.stderr)
    with TemporaryDirectory() as place:
        folder = Path(place)
        recording = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "hour.kvsr"
        if not recording.exists():
            record_chat(recording, SECONDS, num_blocks=400, rate=4.0)
        rows["size"] = size(recording)
        print(f"size {rows['size']}", file=sys.stderr)
        for work in (open_it, play, seek, openmetrics, perfetto, parquet, html):
            rows[work.__name__] = _alone(work, recording, folder)
            print(f"{work.__name__} {rows[work.__name__]}", file=sys.stderr)
    print(json.dumps({"environment": environment(), **rows}))


if __name__ == "__main__":
    main()
