"""Slow and obvious: each number from the whole recorded list of events, by looking back in it.

But for the prefixes none of them keeps a state: for each block they search what came before.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_exporter.state.cache.prefix_table import PrefixTable
from tests.exporter.cache_record import BLOCK_SIZE, Record


@dataclass(frozen=True)
class Heard:
    """One event of a record, and when it happened; None: batches were lost here."""

    event: EngineEvent | None
    time_ns: int


def flat(record: Record) -> list[Heard]:
    """All events in order."""
    heard = []
    for batch in record:
        if batch is None:
            heard.append(Heard(None, 0))
        else:
            heard += [Heard(event, batch.time_ns) for event in batch.events]
    return heard


def is_known(before: Sequence[Heard]) -> bool:
    """Whether the state follows from these events."""
    for heard in reversed(before):
        if heard.event is None:
            return False
        if isinstance(heard.event, PoolCreated | PoolSnapshot):
            return True
    return False


def written_ns(before: Sequence[Heard], block: int) -> int | None:
    """When a block that holds something became findable; None: before we watched."""
    for heard in reversed(before):
        event = heard.event
        if isinstance(event, PoolSnapshot | PoolCreated):
            return None
        if isinstance(event, BlocksCached) and block in event.blocks:
            return heard.time_ns
    raise AssertionError("a block out of nothing")


def idle_ns(before: Sequence[Heard], block: int) -> tuple[bool, int | None]:
    """Whether a block is idle, and since when; None: it is not, or since before we watched."""
    for heard in reversed(before):
        event = heard.event
        if isinstance(event, PoolSnapshot):
            return block in event.lru, None
        if (
            isinstance(event, BlocksAllocated | BlocksShared | BlocksCached)
            and block in event.blocks
        ):
            return False, None
        if isinstance(event, BlocksReleased) and block in event.cached:
            return True, heard.time_ns
    return False, None


@dataclass
class Ages:
    """In seconds, and the number of blocks whose age is not known."""

    known: list[float]
    unknown: int = 0

    def add(self, now_ns: int, since_ns: int | None) -> None:
        if since_ns is None:
            self.unknown += 1
        else:
            self.known.append((now_ns - since_ns) / 1e9)

    def counts(self, bounds: Sequence[float]) -> list[int]:
        """By the first bound that an age does not exceed."""
        edges = [-1.0, *bounds, float("inf")]
        return [sum(1 for age in self.known if low < age <= high) for low, high in pairwise(edges)]


def _known_events(record: Record) -> Iterator[tuple[list[Heard], EngineEvent, int]]:
    """Events that came while the state was known, with all that came before."""
    heard = flat(record)
    for index, one in enumerate(heard):
        if one.event is not None and is_known(heard[:index]):
            yield heard[:index], one.event, one.time_ns


def lifetimes(record: Record) -> Ages:
    ages = Ages([])
    for before, event, now_ns in _known_events(record):
        if isinstance(event, BlocksEvicted) and event.cause == "capacity":
            for block in event.blocks:
                ages.add(now_ns, written_ns(before, block))
    return ages


def idle_times(record: Record) -> Ages:
    ages = Ages([])
    for before, event, now_ns in _known_events(record):
        if isinstance(event, BlocksEvicted) and event.cause == "capacity":
            for block in event.blocks:
                is_idle, since_ns = idle_ns(before, block)
                assert is_idle
                ages.add(now_ns, since_ns)
    return ages


def reuse_gaps(record: Record) -> Ages:
    ages = Ages([])
    for before, event, now_ns in _known_events(record):
        if isinstance(event, BlocksShared):
            for block in event.blocks:
                is_idle, since_ns = idle_ns(before, block)
                if is_idle:
                    ages.add(now_ns, since_ns)
    return ages


def evicted_names(before: Sequence[Heard], window: int) -> dict[bytes, int | None]:
    """Names that were resident once and are not, the last `window` to leave, in that order.

    With the time when each left; None: somewhere in lost batches.
    """
    resident: list[bytes] = []
    left: list[tuple[bytes, int | None]] = []
    known = False
    for heard in before:
        event, gone = heard.event, list[bytes]()
        if event is None:
            known = False
        elif isinstance(event, PoolCreated | PoolSnapshot):
            names = [] if isinstance(event, PoolCreated) else [n for n in event.hashes if n]
            left += [(name, None) for name in dict.fromkeys(resident) if name not in names]
            resident, known = names, True
        elif known and isinstance(event, BlocksCached):
            resident += event.hashes
        elif known and isinstance(event, BlocksEvicted | ContentDropped):
            gone = event.hashes
        for name in gone:
            resident.remove(name)
            if name not in resident:
                left.append((name, heard.time_ns))
        left = [one for one in left if one[0] not in resident]
        left = left[-window:]
    return dict(left)


def loaded_blocks(event: PrefixLookup) -> int:
    """Blocks behind the hits of which at least a part came from elsewhere."""
    return len(range(0, event.loaded_tokens, BLOCK_SIZE))


def regretted(record: Record, window: int) -> Ages:
    """One for each block that a first lookup missed, because it had been evicted, and computed."""
    ages = Ages([])
    for before, event, now_ns in _known_events(record):
        if isinstance(event, PrefixLookup) and not event.resumed:
            evicted = evicted_names(before, window)
            for name in event.hashes[event.hit_blocks + loaded_blocks(event) :]:
                if name in evicted:
                    ages.add(now_ns, evicted[name])
    return ages


def reaches(record: Record, window: int) -> Iterator[tuple[PrefixLookup, int, int]]:
    """First lookups, with the blocks right behind what they had that had been evicted, and the
    time."""
    heard = flat(record)
    for index, one in enumerate(heard):
        event, before = one.event, heard[:index]
        if not isinstance(event, PrefixLookup) or event.resumed:
            continue
        evicted = evicted_names(before, window) if is_known(before) else {}
        lost = 0
        for name in event.hashes[event.hit_blocks + loaded_blocks(event) :]:
            if name not in evicted:
                break
            lost += 1
        yield event, lost, one.time_ns


@dataclass
class Counted:
    """A prefix as a plain row."""

    name: bytes
    length: int
    error: int
    saved: int = 0
    lost: int = 0
    hits: int = 0
    continues: bytes | None = None
    last_used_ns: int = 0

    @property
    def weight(self) -> int:
        return self.error + self.saved + self.lost


def prefixes(
    reaches: Iterable[tuple[PrefixLookup, int, int]], counters: int
) -> tuple[list[Counted], list[tuple[bytes, int]]]:
    """The rows after these lookups, and all tokens that were ever credited, each part of a reach.

    Each part belongs to the known prefix at its end.
    """
    rows: list[Counted] = []
    credits: list[tuple[bytes, int]] = []
    for event, evicted, time_ns in reaches:
        loaded = event.hit_blocks + loaded_blocks(event)
        reach = loaded + evicted
        known = {row.name for row in rows}
        ends = [end for end in range(1, reach) if event.hashes[end - 1] in known]
        for begin, end in pairwise([0, *ends, reach] if reach else []):
            name = event.hashes[end - 1]
            found = len([block for block in range(begin, end) if block < event.hit_blocks])
            lost = len([block for block in range(begin, end) if block >= loaded])
            row = next((row for row in rows if row.name == name), None)
            if row is None and not found + lost:
                continue
            if row is None:
                error = 0
                if len(rows) == counters:
                    least = min(rows, key=lambda row: (row.weight, row.name))
                    error = least.weight
                    rows.remove(least)
                row = Counted(name, end * BLOCK_SIZE, error)
                rows.append(row)
            credits.append((name, (found + lost) * BLOCK_SIZE))
            row.saved += found * BLOCK_SIZE
            row.lost += lost * BLOCK_SIZE
            row.hits += found > 0
            row.continues = event.hashes[begin - 1] if begin else None
            row.last_used_ns = time_ns
    return rows, credits


def counted(table: PrefixTable) -> list[Counted]:
    """A table's rows in the same form, by name."""
    rows = [
        Counted(
            *(p.name, p.length_tokens, p.error_tokens, p.saved_tokens, p.lost_tokens),
            *(p.hits, p.continues, p.last_used_ns),
        )
        for p in table.prefixes.values()
    ]
    return sorted(rows, key=lambda row: row.name)
