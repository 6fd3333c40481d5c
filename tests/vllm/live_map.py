"""The live view of an observed scheduler, read back as a page reads it and compared with the pool.

Runs in the Python of a vLLM. Its queue holds few batches and it reads at odd times, so that it
loses some: then the map must be unknown, and after the next snapshot the pool's own again.
"""

import os
import random
import sys
from collections import Counter
from typing import Any

sys.path.append(os.environ["KVSCOPE_TEST_PACKAGES"])  # what an exporter needs and vLLM has not

from kvscope_events.bus import EventBus
from kvscope_exporter.live.view import UnknownHereError, View
from kvscope_exporter.targets.exporter import in_process
from tests.support.live_reader import CACHED, FREE, RESERVED, LiveReader, Stale

QUEUE_BATCHES = 16
RESTS = (1, 1, 1, 1, 1, 2, 2, 3, QUEUE_BATCHES + 8)
"""Comparisons from one reading to the next: now and then more steps than the queue holds."""
MAX_EXAMPLES = 8


class LiveMap:
    """The map as a page would show it; `compare` notes each cell and LRU place that differs."""

    def __init__(self, bus: EventBus, seed: int = 0) -> None:
        subscription = bus.subscribe(QUEUE_BATCHES)
        self._exporter = in_process(subscription)
        self._choice = random.Random(seed)
        self._rest = 0
        self._view: View | None = None
        self._reader: LiveReader | None = None
        self.told: Counter[str] = Counter()
        """Readings by what they were: equal, unknown, differing; and snapshots taken."""
        self.examples: list[str] = []

    def compare(self, pool: Any) -> None:
        """Read, at times, and compare with vLLM's pool of this moment."""
        self._rest -= 1
        if self._rest > 0:
            return
        self._rest = self._choice.choice(RESTS)
        if not self._read() or self._reader is None:
            self.told["unknown"] += 1
            return
        if self._reader.pool["map"] != "blocks":
            assert self._reader.pool["active"] is None
            self.told["unknown"] += 1
            self._rest = 0  # the next batch has the snapshot
            return
        expected = cells(pool, self._reader.pool["reserved"])
        queue = pool.free_block_queue.get_all_free_blocks()
        lru = [block.block_id for block in queue if block.block_hash is not None]
        shown = list(self._reader.columns["cell"])
        if (shown, self._reader.lru) == (expected, lru):
            self.told["equal"] += 1
            return
        self.told["differing"] += 1
        if len(self.examples) < MAX_EXAMPLES:
            pairs = enumerate(zip(shown, expected, strict=True))
            where = [(block, ours, theirs) for block, (ours, theirs) in pairs if ours != theirs]
            self.examples.append(
                f"cells {where[:5]}, next {self._reader.lru[:5]}, in vLLM {lru[:5]}"
            )

    def _read(self) -> bool:
        """Follow the view; whether there is anything to be seen."""
        (target,) = self._exporter.targets
        target.pipeline.drain()
        if target.hello is None:
            return False
        try:
            if self._view is None or self._reader is None:
                self._view = View(target)
                self._take_snapshot(self._view)
                return True
            frame = self._view.frame()
            if frame is not None:
                self._reader.apply(frame)
        except Stale:
            self._take_snapshot(self._view)
        except UnknownHereError:
            return False
        return True

    def _take_snapshot(self, view: View) -> None:
        self._reader = LiveReader(view.snapshot()[1])
        self.told["snapshots"] += 1


def cells(pool: Any, reserved: int) -> list[int]:
    """The column `cell` that vLLM's own blocks should have."""
    return [
        RESERVED
        if block.block_id < reserved
        else CACHED + block.ref_cnt
        if block.ref_cnt
        else FREE
        if block.block_hash is None
        else CACHED
        for block in pool.blocks
    ]
