"""The live view of a running vLLM as a browser gets it; each map compared with the pool."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx

from kvscope_events.events import PoolSnapshot
from kvscope_exporter.state import Ledger
from tests.support.live_reader import CACHED, FREE, RESERVED, LiveReader, Stale
from tests.vllm.live_replay import Replay

Map = tuple[list[int], list[int]]
"""Cells by block, and the cached blocks in the order in which they will be evicted."""

get = partial(httpx.get, timeout=30)


class LiveFrames:
    """Follows until it is stopped; keeps the map after every frame."""

    def __init__(self, url: str) -> None:
        """url: base URL of the kvscope."""
        self.maps: list[tuple[int, Map]] = []
        """With the producer's time, in milliseconds."""
        self.problem: Exception | None = None
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def assert_maps_are(self, replay: Replay) -> None:
        """Every map is the pool after a batch of its millisecond."""
        self.stop()
        assert self.problem is None, self.problem
        wanted = {at for at, _ in self.maps}
        pools: dict[int, list[Map]] = {}
        ledger = Ledger()
        for batch in replay.batches:
            ledger.on_batch(batch)
            at = batch.time_ns // 10**6
            if at in wanted and ledger.known:
                pools.setdefault(at, []).append(_map_of(ledger.state()))
        for at, shown in self.maps:
            assert shown in pools[at], f"{at} ms: {shown} is not one of {pools[at]}"

    def _run(self) -> None:
        while not self._stopped.is_set() and self.problem is None:
            try:
                self._follow()
            except Stale:
                continue
            except Exception as error:
                self.problem = error

    def _follow(self) -> None:
        with httpx.stream("GET", f"{self._url}/live/events", timeout=30) as opened:
            reader = LiveReader(get(f"{self._url}/live/snapshot").content)
            for line in opened.iter_lines():
                if line == "event: behind":
                    raise Stale
                if line.startswith("data: ") and '"frame"' in line:
                    frame = line.removeprefix("data: ").encode()
                    before = reader.frame
                    reader.apply(frame)
                    if reader.frame > before and reader.pool["map"] == "blocks":
                        self.maps.append((reader.now_ms, ([*reader.columns["cell"]], reader.lru)))
                if self._stopped.is_set():
                    return


@contextmanager
def live_frames(url: str) -> Iterator[LiveFrames]:
    """A viewer beside whatever happens inside the block."""
    running = LiveFrames(url)
    try:
        yield running
    finally:
        running.stop()


def _map_of(pool: PoolSnapshot) -> Map:
    cells = [
        RESERVED
        if block < pool.reserved
        else CACHED + references
        if references
        else FREE
        if name is None
        else CACHED
        for block, (references, name) in enumerate(zip(pool.ref_counts, pool.hashes, strict=True))
    ]
    return cells, list(pool.lru)
