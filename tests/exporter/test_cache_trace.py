"""Regret, residency and prefixes on a public trace, against one plain pass over the whole list.

KVSCOPE_TRACE names a trace in Mooncake's format; without one there is nothing to test.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.traces import read_trace
from kvscope_events.events import (
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    PrefixLookup,
)
from kvscope_exporter.state.buckets import REGRET_AGE_SECONDS, RESIDENCY_SECONDS
from tests.exporter import cache_oracle as oracle
from tests.exporter.cache_record import BLOCK_SIZE, QUARTER_NS, Life, Record, folded

TRACE = os.environ.get("KVSCOPE_TRACE", "")
REQUESTS = 3_000
RUNNING = 6
NUM_BLOCKS = 2_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TRACE, reason="no trace: set KVSCOPE_TRACE"),
]


def recorded() -> Life:
    """The first requests, a few at a time; each ends when this many others have come."""
    life = Life(num_blocks=NUM_BLOCKS)
    requests = read_trace(Path(TRACE))
    for _, request in zip(range(REQUESTS), requests, strict=False):
        at_ns = round(request.timestamp_ms * 1e6)
        life.wait(max(0, (at_ns - life.now_ns) // QUARTER_NS))
        names = [block.to_bytes(16) for block in request.hash_ids]
        if life.ask(names) and life.num_running > RUNNING:
            life.finish(0)
    life.hear()
    return life


class Plain:
    """By name and block: what happened last, kept in dicts of the whole list."""

    def __init__(self, record: Record) -> None:
        self.lifetimes, self.idle = oracle.Ages([]), oracle.Ages([])
        self.reuse, self.regret = oracle.Ages([]), oracle.Ages([])
        self.reaches: list[tuple[PrefixLookup, int, int]] = []
        self._written: dict[int, int] = {}
        self._idle: dict[int, int] = {}
        self._evicted: dict[bytes, int] = {}
        self._copies = Counter[bytes]()
        for heard in oracle.flat(record):
            now_ns, event = heard.time_ns, heard.event
            if isinstance(event, PrefixLookup):
                missed = event.hashes[event.hit_blocks :]
                times = [self._evicted.get(name) for name in missed]
                for time_ns in times:
                    if time_ns is not None:
                        self.regret.add(now_ns, time_ns)
                leading = times.index(None) if None in times else len(times)
                self.reaches.append((event, leading, now_ns))
            elif isinstance(event, BlocksCached):
                for block, name in zip(event.blocks, event.hashes, strict=True):
                    self._written[block] = now_ns
                    self._copies[name] += 1
                    self._evicted.pop(name, None)
            elif isinstance(event, BlocksReleased):
                self._idle.update(dict.fromkeys(event.cached, now_ns))
            elif isinstance(event, BlocksShared):
                for time_ns in self._ended(event.blocks):
                    self.reuse.add(now_ns, time_ns)
            elif isinstance(event, BlocksEvicted):
                for time_ns in self._ended(event.blocks):
                    self.idle.add(now_ns, time_ns)
                for block, name in zip(event.blocks, event.hashes, strict=True):
                    self.lifetimes.add(now_ns, self._written.pop(block))
                    self._copies[name] -= 1
                    if not self._copies[name]:
                        self._evicted[name] = now_ns

    @property
    def oldest_ns(self) -> int:
        return min(self._idle.values())

    def _ended(self, blocks: list[int]) -> Iterator[int]:
        for block in blocks:
            if block in self._idle:
                yield self._idle.pop(block)


def test_a_trace_gives_what_one_plain_pass_gives() -> None:
    life = recorded()
    cache, plain = folded(life.record), Plain(life.record)
    assert len(plain.regret.known) > 1_000, "the pool is small enough"
    residency, regret = cache.residency, cache.regret
    for histogram, ages in (
        (residency.lifetime_seconds, plain.lifetimes),
        (residency.idle_seconds, plain.idle),
        (residency.reuse_seconds, plain.reuse),
    ):
        assert histogram.counts_at(RESIDENCY_SECONDS) == ages.counts(RESIDENCY_SECONDS)
        assert histogram.total == sum(ages.known)
    assert residency.oldest_idle_ns() == plain.oldest_ns
    assert regret.tokens == BLOCK_SIZE * len(plain.regret.known)
    assert regret.age_seconds.counts == plain.regret.counts(REGRET_AGE_SECONDS)
    rows, _ = oracle.prefixes(plain.reaches, 1024)
    assert oracle.counted(cache.prefixes.table) == sorted(rows, key=lambda row: row.name)
