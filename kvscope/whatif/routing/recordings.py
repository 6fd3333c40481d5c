"""The requests of the recordings of one or several replicas, merged by their wall clocks.

Names become numbers, the same in all recordings. A request arrives when its engine heard of it, and
what it cached behind its lookup is known, so that a later turn of a conversation can find it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from kvscope.whatif.batches import Batches, Stream, Taken
from kvscope.whatif.findings import WhatIfError
from kvscope.whatif.recording import TELL_EVERY, doubts_about
from kvscope.whatif.routing.workload import Request, Workload
from kvscope_events.events import (
    BlocksCached,
    Hello,
    NamesStored,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
)

Pool = PoolCreated | PoolSnapshot | PoolCounted
_RESTARTED = "was restarted, which emptied its pool; simulated pools go on"


@dataclass(slots=True, kw_only=True)
class _Lookup:
    at: float
    names: list[int]
    prompt_tokens: int
    call: Hashable | None
    further: dict[int, None] = field(default_factory=dict)
    output_tokens: int | None = None
    """None: it had not ended."""


class _Reader:
    """One stream of a recording."""

    def __init__(self, file: Path, ids: dict[bytes, int]):
        self.file = file
        self.lookups: list[_Lookup] = []
        self.hits = 0
        self.unnamed = 0
        """First lookups without names."""
        self.lost = 0
        self.runs: dict[int, Hello | None] = {}
        """By the engine's run: how it introduced itself last."""
        self.asked_in: dict[int, None] = {}
        """Runs with lookups."""
        self.pool: Pool | None = None
        self.is_whole = True
        """Whether each pool is seen from its creation on."""
        self.without_wall = False
        self.replica: Hashable = self
        """The engine of the file that it is of; before a restart it may have had another stream."""
        self._ids = ids
        self._at = 0.0
        self._running: dict[int, _Lookup] = {}
        self._ends: dict[int, _Lookup] = {}
        """By the last block of what they looked up or cached: the last request with that end."""
        self._arrived: dict[int, tuple[float, int]] = {}

    def read(self, taken: Taken) -> None:
        """Take the next batch. Raises WhatIfError for pools that cannot be simulated."""
        batch, run = taken.batch, taken.stream.run
        if run not in self.runs:
            self.runs[run] = None
            self._running.clear()
            self._arrived.clear()
        self.lost += taken.lost
        self.without_wall |= not batch.wall_ns
        self._at = max(self._at, (batch.wall_ns or batch.time_ns) / 1e9)
        for event in batch.events:
            match event:
                case PrefixLookup():
                    self._look_up(event, run)
                case BlocksCached() if event.sequence in self._running:
                    assert event.sequence is not None
                    self._cache(self._running[event.sequence], event.hashes)
                case SequenceAdded():
                    self._arrived[event.sequence] = (self._at, event.request)
                case SequenceFinished():
                    self._arrived.pop(event.sequence, None)
                    ended = self._running.pop(event.sequence, None)
                    if ended is not None:
                        ended.output_tokens = event.output_tokens
                case Hello():
                    self.runs[run] = event
                    self.replica = self.file, event.model_name, event.engine
                case PoolCreated() | PoolSnapshot() | PoolCounted():
                    self._take_pool(event)
                case NamesStored() if event.tier == "device":
                    self._store(event)
                case _:  # what happens to blocks under another router is simulated
                    pass

    def _look_up(self, event: PrefixLookup, run: int) -> None:
        if event.resumed:
            return
        if not event.named:
            self.unnamed += 1
            return
        at, request = self._arrived.get(event.sequence, (self._at, None))
        names = [self._ids.setdefault(name, len(self._ids)) for name in event.hashes]
        lookup = self._running[event.sequence] = _Lookup(
            at=at,
            names=names,
            prompt_tokens=event.queried_tokens,
            call=None if request is None else (self, run, request),
        )
        self.lookups.append(lookup)
        if names:
            self._ends[names[-1]] = lookup
        self.asked_in[run] = None
        self.hits += event.hit_blocks

    def _cache(self, lookup: _Lookup, hashes: Sequence[bytes]) -> None:
        numbers = [self._ids.setdefault(name, len(self._ids)) for name in hashes]
        if not set(numbers).issubset(lookup.names):
            known = set(lookup.names)
            lookup.further.update((number, None) for number in numbers if number not in known)

    def _store(self, event: NamesStored) -> None:
        """Content of a counted pool comes without its request: it is the one that it continues."""
        before = None if event.parent is None else self._ids.get(event.parent)
        for name in event.names:
            number = self._ids.setdefault(name, len(self._ids))
            continued = None if before is None else self._ends.pop(before, None)
            if continued is not None:
                continued.further[number] = None
                self._ends[number] = continued
            before = number

    def _take_pool(self, pool: Pool) -> None:
        if not isinstance(pool, PoolCounted) and len(pool.groups) > 1:
            raise WhatIfError(
                f"{self.file}: its pool has several kinds of layers, and pools of that kind are "
                "not simulated under another router"
            )
        if self.pool is not None and pool.block_size != self.pool.block_size:
            raise WhatIfError(
                f"{self.file}: its blocks have {self.pool.block_size} tokens at first and "
                f"{pool.block_size} later"
            )
        if isinstance(pool, PoolSnapshot):
            self.is_whole &= self.pool is not None or not any(pool.hashes)
        elif isinstance(pool, PoolCounted):
            self.is_whole &= self.pool is not None or not (pool.protected or pool.cached)
        self.pool = pool


def workload_of_recordings(
    files: Sequence[Path], on_progress: Callable[[int], None] = lambda batches: None
) -> Workload:
    """Every engine of a recording is a replica. Raises RecordingError for a file that cannot be
    read, WhatIfError for what cannot be replayed."""
    ids: dict[bytes, int] = {}
    readers: list[_Reader] = []
    doubts: list[str] = []
    batches = count(1)
    for file in files:
        recording = Batches(file)
        streams: dict[Stream, _Reader] = {}
        for taken in recording:
            if taken.stream not in streams:
                streams[taken.stream] = _Reader(file, ids)
            streams[taken.stream].read(taken)
            number = next(batches)
            if number % TELL_EVERY == 0:
                on_progress(number)
        if not streams:
            raise WhatIfError(f"{file}: {recording.problem or 'it holds no batch'}")
        # Workers and front ends have no pool.
        engines = [each for each in streams.values() if each.pool is not None]
        for reader in engines or [*streams.values()][:1]:
            if not reader.lookups and (why := _why_nothing(reader)):
                raise WhatIfError(f"{file}: {why}")
            readers.append(reader)
            doubts += _doubts(reader)
        doubts += [f"{file.name}: {doubt}" for doubt in doubts_about(recording)]
    if not any(reader.lookups for reader in readers):
        raise WhatIfError(f"{files[0]}: no lookup in it")
    pools = [_pool_of(reader) for reader in readers]
    _check_comparable(readers, pools)
    sizes = {pool.num_blocks - pool.reserved for pool in pools}
    bytes_per_block = {pool.bytes_per_block for pool in pools}
    replicas = list(dict.fromkeys(reader.replica for reader in readers))
    if len(replicas) < len(readers):
        doubts.append(f"an engine {_RESTARTED}")
    requests, unfinished = _merged(readers, replicas)
    if unfinished:
        doubts.append(
            f"{unfinished:,} of {len(requests):,} requests had not ended: they decode as long as "
            "the median of the others"
        )
    return Workload(
        kind="recordings",
        requests=requests,
        block_tokens=pools[0].block_size,
        bytes_per_block=(bytes_per_block.pop() or None) if len(bytes_per_block) == 1 else None,
        pool_blocks=sizes.pop() if len(sizes) == 1 else None,
        recordings=len(replicas),
        recorded_hits=sum(reader.hits for reader in readers),
        doubts=doubts,
    )


def _merged(readers: Sequence[_Reader], replicas: Sequence[Hashable]) -> tuple[list[Request], int]:
    """All requests in order of arrival, and the number of those that had not ended."""
    known = [
        lookup.output_tokens
        for reader in readers
        for lookup in reader.lookups
        if lookup.output_tokens is not None
    ]
    usual = round(median(known)) if known else 0
    requests = [
        Request(
            at=lookup.at,
            names=lookup.names,
            prompt_tokens=lookup.prompt_tokens,
            output_tokens=usual if lookup.output_tokens is None else lookup.output_tokens,
            further=list(lookup.further),
            call=lookup.call,
            recorded_on=replicas.index(reader.replica),
        )
        for reader in readers
        for lookup in reader.lookups
    ]
    requests.sort(key=lambda request: request.at)
    return requests, len(requests) - len(known)


def _pool_of(reader: _Reader) -> Pool:
    if reader.pool is None:
        raise WhatIfError(f"{reader.file}: no pool in it: it ends before the engine's state came")
    return reader.pool


def _check_comparable(readers: Sequence[_Reader], pools: Sequence[Pool]) -> None:
    """Raises WhatIfError: names of different name spaces are never merged."""
    tokens = sorted({pool.block_size for pool in pools})
    if len(tokens) > 1:
        raise WhatIfError(
            "the recordings cannot be merged: their blocks have "
            f"{' and '.join(map(str, tokens))} tokens"
        )
    runs = [(reader, reader.runs[run]) for reader in readers for run in reader.asked_in]
    owners: dict[str, _Reader] = {}
    for reader, hello in runs:
        if hello is not None and owners.setdefault(hello.session, reader) is not reader:
            raise WhatIfError(
                f"{owners[hello.session].file} and {reader.file} are recordings of the same engine"
            )
    if len(runs) == 1:
        return
    for reader, hello in runs:
        if hello is None or hello.name_space is None:
            raise WhatIfError(
                f"{reader.file}: its names of blocks cannot be compared with those of another run: "
                "the server does not say what they depend on"
            )
    first, others = runs[0], runs[1:]
    for other in others:
        if _space(other[1]) != _space(first[1]):
            raise WhatIfError(
                f"{first[0].file} and {other[0].file} cannot be merged: {_difference(first, other)}"
            )
    without_clock = next((reader for reader in readers if reader.without_wall), None)
    if len(readers) > 1 and without_clock is not None:
        raise WhatIfError(f"{without_clock.file}: it has no wall clock by which to merge it")


def _space(hello: Hello | None) -> str | None:
    return None if hello is None else hello.name_space


def _difference(one: tuple[_Reader, Hello | None], other: tuple[_Reader, Hello | None]) -> str:
    """The reason why two runs name the same content differently, with its remedy."""
    assert one[1] is not None
    assert other[1] is not None
    for what, fact in (("model", "model_name"), ("hash algorithm", "prefix_caching_hash_algo")):
        values = [getattr(hello, fact) for hello in (one[1], other[1])]
        if values[0] != values[1]:
            return f"the {what} is {values[0]} in one and {values[1]} in the other"
    return "their names of blocks begin differently: run all replicas with the same PYTHONHASHSEED"


def _why_nothing(reader: _Reader) -> str | None:
    """None: its engine was only idle."""
    if any(hello and hello.enable_prefix_caching is False for hello in reader.runs.values()):
        return "nothing is looked up in it: prefix caching is off (--enable-prefix-caching)"
    if reader.unnamed:
        return "its lookups do not name their blocks, so no other placement can be replayed"
    return None


def _doubts(reader: _Reader) -> Iterator[str]:
    name = reader.file.name
    if reader.lost:
        yield f"{name}: {reader.lost:,} batches are missing; their requests are not replayed"
    if not reader.lookups:
        yield f"{name}: nothing was looked up in it"
    if len(reader.asked_in) > 1:
        yield f"{name}: the engine {_RESTARTED}"
    if not reader.is_whole:
        yield (
            f"{name} begins with a pool in use: simulated pools begin empty, so they find too "
            "little at first"
        )
    if reader.unnamed:
        yield f"{name}: {reader.unnamed:,} lookups do not name their blocks and are not replayed"
