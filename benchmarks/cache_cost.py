"""Cost of the cache fold in small and large pools: `python -m benchmarks.cache_cost`.

Conversations with one system prompt on a full pool: each request finds the prompt and, half the
time, its own earlier turn; its new blocks evict the oldest. The events are recorded from the real
pool; only the last ones are timed, once the largest pool has turned over: every pool has had the
same requests, and its window of evicted names is as full. CPU time of the thread, the least of some
repetitions on the same fold, for all of it and with the questions of time (residency, regret,
prefixes) switched off. Prints one JSON line.
"""

import argparse
import json
import time
from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

from benchmarks.report import environment
from engine.block_pool import BlockPool
from exporter.fold import Cache
from exporter.fold.cache.prefixes import Prefixes
from exporter.fold.cache.regret import Regret
from exporter.fold.cache.residency import Residency
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, PrefixLookup

BLOCK_SIZE = 16
SYSTEM_BLOCKS = 8
TURN_BLOCKS = 24
STEP_NS = 20_000_000
TIMED_REQUESTS = 2_000
REPETITIONS = 7
OFF = (
    *((Residency, name) for name in ("share", "lose", "release")),
    *((Regret, "look_up"), (Prefixes, "look_up")),
)


class Conversations:
    """Requests on a pool, a batch for each."""

    def __init__(self, num_blocks: int) -> None:
        bus = EventBus()
        self._events = bus.subscribe(queue_batches=1)
        self._bus = bus
        self._pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
        self._random = Random(1)
        self._number = 0
        self._system = [self._name(1, index) for index in range(SYSTEM_BLOCKS)]

    def batch(self) -> Batch:
        """The next request: admitted, computed and finished in one step."""
        self._number += 1
        number = self._number
        if self._random.random() < 0.5:
            conversation, turns = number, 1
        else:
            conversation, turns = max(1, number - self._random.randrange(1, 40)), 2
        names = self._system + [
            self._name(conversation, index) for index in range(TURN_BLOCKS * turns)
        ]
        pool = self._pool
        prefix = pool.find(names)
        self._bus.emit(PrefixLookup(number, len(names) * BLOCK_SIZE + 1, names, len(prefix)))
        if prefix:
            pool.share(number, prefix)
        table = prefix + pool.allocate(number, len(names) - len(prefix), "prefill")
        if len(prefix) < len(names):
            pool.cache(number, table[len(prefix) :], names[len(prefix) :], None)
        pool.release(number, table, "finished")
        self._bus.flush()
        taken = self._events.take()
        assert taken is not None
        now_ns = number * STEP_NS
        return Batch(number, now_ns, list(taken[0].events), now_ns, now_ns)

    @staticmethod
    def _name(number: int, index: int) -> bytes:
        return number.to_bytes(8, "little") + index.to_bytes(8, "little")


def ns_per_block(num_blocks: int, warm_up: int, *, on: bool) -> float:
    """Least CPU time of a block in an event, with or without the questions of time."""
    conversations, cache = Conversations(num_blocks), Cache()
    patches = [] if on else [patch.object(owner, name, _nothing) for owner, name in OFF]
    for one in patches:
        one.start()
    try:
        for _ in range(warm_up):
            cache.on_batch(conversations.batch())
        samples = []
        for _ in range(REPETITIONS):
            batches = [conversations.batch() for _ in range(TIMED_REQUESTS)]
            began = time.thread_time_ns()
            for batch in batches:
                cache.on_batch(batch)
            spent = time.thread_time_ns() - began
            samples.append(spent / sum(map(_blocks_of, batches)))
    finally:
        for one in patches:
            one.stop()
    return min(samples)


def _blocks_of(batch: Batch) -> int:
    """Blocks that the events of a batch name."""
    lists: list[Sequence[Any]] = []
    for event in batch.events:
        if isinstance(event, PrefixLookup):
            lists.append(event.hashes)
        else:
            lists += [getattr(event, name, ()) for name in ("blocks", "cached", "free", "shared")]
    return sum(map(len, lists))


def _nothing(*_arguments: object, **_options: object) -> None:
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1_000, 1_000_000])
    arguments = parser.parse_args()
    print(environment())
    warm_up = 5 * max(arguments.blocks) // (4 * TURN_BLOCKS)
    results = {
        number: {
            "all": ns_per_block(number, warm_up, on=True),
            "without": ns_per_block(number, warm_up, on=False),
        }
        for number in arguments.blocks
    }
    print(f"{'ns a block in an event':>24}{'all':>10}{'without':>10}")
    for number, result in results.items():
        print(f"{number:>24,}{result['all']:>10.0f}{result['without']:>10.0f}")
    whole = [result["all"] for result in results.values()]
    print(f"largest over smallest pool: {whole[-1] / whole[0]:.2f}")
    print(json.dumps({**environment(), "ns_per_block": results}))


if __name__ == "__main__":
    main()
