"""Samples from a recording: the pages that a Prometheus would have scraped."""

from collections.abc import Set
from pathlib import Path

from kvscope.backtest import BacktestError
from kvscope.backtest.samples import Samples
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback

STEP_SECONDS = 15


def recorded(path: Path, names: Set[str]) -> Samples:
    """Raises RecordingError, BacktestError."""
    playback = Playback(RecordingFile(path))
    file = playback.file
    if not playback.index.pages:
        raise BacktestError(
            f"{path}: it has the events of a stream alone, and rules need what a page has beside "
            "them: try a recording that a sidecar saved (POST /api/recordings)"
        )
    begins = -(-file.begins_ns // (STEP_SECONDS * 10**9)) * STEP_SECONDS
    count = (file.ends_ns // 10**9 - begins) // STEP_SECONDS + 1
    if count < 2:
        raise BacktestError(f"{path}: it is shorter than {2 * STEP_SECONDS} s")
    samples = Samples(source=str(path), begins=begins, step=STEP_SECONDS, count=count)
    added = {"job": "kvscope", "instance": file.opened.server}
    for index in range(count):
        playback.to((begins + index * STEP_SECONDS) * 10**9)
        samples.put("up", added, index, 1.0)
        for family in playback.exporter.registry.collect():
            for sample in family.samples:
                if sample.name in names:
                    samples.put(sample.name, {**added, **sample.labels}, index, sample.value)
    playback.close()
    return samples
