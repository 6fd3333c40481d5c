"""Pages of a kvscope scraped beside a load, and compared with those of its recording."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.replay.recorded import lines_of
from tests.support.waiting import wait_for

EVERY_SECONDS = 2.0
FEWEST = 6
"""Pages worth comparing."""


class Scrape(NamedTuple):
    began_ns: int
    """Wall clock, like the next."""
    ended_ns: int
    page: bytes


class Scraped:
    """Every page until it is stopped or saved."""

    def __init__(self, url: str) -> None:
        """url: base URL of the kvscope."""
        self.scrapes: list[Scrape] = []
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def save(self, folder: Path) -> Path:
        """Stop, and save the recording by hand."""
        wait_for(lambda: len(self.scrapes) >= FEWEST, "it has been scraped", 180)
        self.stop()
        recordings = f"{self._url}/api/recordings"
        saved = httpx.post(recordings, json={}, timeout=60).raise_for_status().json()
        path: Path = folder / saved["name"]
        path.write_bytes(httpx.get(f"{recordings}/{path.name}", timeout=60).content)
        return path

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            began_ns = time.time_ns()
            page = httpx.get(f"{self._url}/metrics", timeout=120).content
            self.scrapes.append(Scrape(began_ns, time.time_ns(), page))

    def assert_replayed(self, path: Path) -> int:
        """Every page comes out of the recording again, line by line; returns the lines compared."""
        playback = Playback(RecordingFile(path))
        times = [page.wall_ns for page in playback.index.pages]
        compared = 0
        for scrape in self.scrapes:
            within = [n for n, at in enumerate(times) if scrape.began_ns <= at <= scrape.ended_ns]
            assert within, (scrape.began_ns, times[0], times[-1])
            served = lines_of(scrape.page)
            for number in within:  # another page may have been rendered beside it
                playback.to_page(number)
                replay = lines_of(playback.exporter.render()[0])
                if replay == served:
                    break
            else:
                raise AssertionError(sorted(set(served) ^ set(replay))[:20])
            compared += len(served)
        assert playback.file.problem is None
        playback.close()
        return compared


@contextmanager
def scraped(url: str) -> Iterator[Scraped]:
    """A scraper beside whatever happens inside the block."""
    running = Scraped(url)
    try:
        yield running
    finally:
        running.stop()
