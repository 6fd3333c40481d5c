"""The curve of a recorded stream: running requests hold their blocks as they did.

A stretch is a part of the recording without a break: the same run of the engine, the same pool, no
batch missing. The curve is that of the last stretch with look-ups.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kvscope.whatif.batches import Batches, Stream, Taken
from kvscope.whatif.findings import Findings, Point, Pool, WhatIfError
from kvscope_events.events import (
    EngineEvent,
    Hello,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_exporter.state.cache.contents import Contents
from kvscope_exporter.state.cache.curve import HitCurve
from kvscope_exporter.state.cache.depths import MOST_SCALE, LookupDepths
from kvscope_exporter.state.simulation.fold import can_simulate
from kvscope_exporter.state.simulation.follower import Follower
from kvscope_exporter.state.simulation.simulation import AGREE_RATIO

TELL_EVERY = 256
"""Batches between two calls of `on_progress`."""
_SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Default capacities, as shares of the pool."""
_RESTARTED = "the engine was restarted"
_NOTHING_LOOKED_UP = "no lookup in it while the state of the pool was known"


class _Stretch(Contents):
    """The pool's content in one stretch, and the hits that the engine itself reported in it."""

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        super().__init__(window=1, forgotten=1)  # the depths need no names that are gone
        self.simulated: _SimulatedPools | None = None
        """None: one group of layers, or several that are not simulated."""
        self._wanted = wanted
        self.lookups = 0
        self.hit_blocks = 0
        self.is_whole = False
        """Whether it begins with an empty pool, not in the middle."""
        self.curve = HitCurve()
        self._first_ns = self._last_ns = 0

    @property
    def has_pool(self) -> bool:
        return self.block_size > 0

    @property
    def seconds(self) -> float:
        """Seconds from the first lookup to the last."""
        return (self._last_ns - self._first_ns) / 1e9

    def _begin(self, event: PoolCreated | PoolSnapshot, gone_ns: int) -> None:
        super()._begin(event, gone_ns)
        self.is_whole = isinstance(event, PoolCreated)
        if self.simulated is None and can_simulate(event):
            self.simulated = _SimulatedPools(event, self._wanted)

    def apply(self, event: EngineEvent) -> None:
        super().apply(event)
        if self.simulated is not None:
            self.simulated.follower.take(event)

    def _look_up(self, event: PrefixLookup) -> LookupDepths | None:
        looked = super()._look_up(event)
        if event.resumed or (looked is None and self.simulated is None):
            return looked
        self._last_ns = self.batch.time_ns
        self._first_ns = self._first_ns if self.lookups else self._last_ns
        self.lookups += 1
        self.hit_blocks += event.hit_blocks
        if looked is not None:
            # A distance is one more than the number of blocks above, referenced ones included.
            self.curve.look_up(len(event.hashes), looked.held, -1, looked.distances)
        return looked


class _SimulatedPools:
    """Pools of several groups of layers, of the sizes asked for and of the recording's own."""

    def __init__(self, pool: PoolCreated | PoolSnapshot, wanted: Sequence[int]) -> None:
        self.usable = pool.num_blocks - pool.reserved
        sizes = sorted(set(wanted)) or [max(1, int(share * self.usable)) for share in _SHARES]
        self.capacities = sorted({*sizes, self.usable})
        self.hits = [0] * len(self.capacities)
        self.queried_blocks = 0
        self.follower = Follower(pool, self.capacities, self._found)

    @property
    def own_hits(self) -> int:
        """Hits at the recording's own size."""
        return self.hits[self.capacities.index(self.usable)]

    def _found(self, event: PrefixLookup, blocks: Sequence[int]) -> None:
        if not event.resumed:
            self.queried_blocks += len(event.hashes)
            self.hits = [hits + more for hits, more in zip(self.hits, blocks, strict=True)]


class _Reader:
    """Divides a stream into stretches."""

    def __init__(self, recording: Batches, wanted: Sequence[int]) -> None:
        self.recording = recording
        self._wanted = wanted
        self.stretch = _Stretch(wanted)
        self.best: _Stretch | None = None
        """The last stretch with look-ups."""
        self.lookups = 0
        """First lookups in the whole stream."""
        self.breaks: dict[str, int] = {}
        """The reasons why stretches ended, with their counts."""
        self.caching: bool | None = None
        self.engine: tuple[str, str] | None = None
        """Model name and rank, by which it is known again after a restart."""
        self.has_pool = False
        self._run = 0

    def read(self, taken: Taken) -> None:
        """Take the next batch."""
        if taken.lost:
            self._break(f"{taken.lost:,} batches are missing")
        elif taken.stream.run != self._run:
            self._break(_RESTARTED)
        self._run = taken.stream.run
        for event in taken.batch.events:
            # Earlier events of the same batch still belong to the former pool.
            if isinstance(event, PoolCreated) and self.stretch.has_pool:
                self._break("the pool was recreated")
            self.stretch.batch = taken.batch
            self.stretch.apply(event)
            if isinstance(event, Hello):
                self.caching = event.enable_prefix_caching
                self.engine = event.model_name, event.engine
            elif isinstance(event, PrefixLookup):
                self.lookups += not event.resumed
                if self.stretch.lookups:
                    self.best = self.stretch
        self.has_pool = self.has_pool or self.stretch.has_pool

    def follow(self, before: "_Reader") -> None:
        """Count a stream of the same engine before this one, which a restart has ended."""
        self.lookups += before.lookups
        for why, count in (*before.breaks.items(), (_RESTARTED, 1)):
            self.breaks[why] = self.breaks.get(why, 0) + count

    def _break(self, why: str) -> None:
        self.breaks[why] = self.breaks.get(why, 0) + 1
        self.stretch = _Stretch(self._wanted)


def curve_of_recording(
    file: Path,
    capacities: Sequence[int] = (),
    on_progress: Callable[[int], None] = lambda batches: None,
) -> Findings:
    """Compute the curve in one pass.

    capacities: empty stands for some shares of the pool, up to four times.

    Raises RecordingError for a file that cannot be read, WhatIfError for one without a curve.
    """
    recording = Batches(file)
    readers: dict[Stream, _Reader] = {}
    for number, taken in enumerate(recording, start=1):
        if taken.stream not in readers:
            readers[taken.stream] = _Reader(recording, capacities)
        readers[taken.stream].read(taken)
        if number % TELL_EVERY == 0:
            on_progress(number)
    if not readers:
        raise WhatIfError(f"{file}: {recording.problem or 'it holds no batch'}")
    *before, reader = sorted(readers.values(), key=lambda each: each.best is not None)
    stretch = reader.best
    if stretch is None:
        raise WhatIfError(f"{file}: {_why_no_curve([*readers.values()])}")
    for other in before:
        if other.best is not None:
            if other.engine != reader.engine:
                raise WhatIfError(
                    f"{file}: it has several engines, each with a pool of its own: record the "
                    "events of one (kvscope rec save), or replay the requests of all (--replicas)"
                )
            reader.follow(other)
    if stretch.simulated is not None:
        return _of_groups(file, reader, stretch, stretch.simulated)
    return _findings(reader, stretch, capacities)


def _why_no_curve(readers: Sequence[_Reader]) -> str:
    """The reason, in the order of what a user can do about it."""
    reader = next((each for each in readers if each.has_pool), None)
    if reader is None:
        return "no pool in it: it is of a worker, or ends before the engine's state came"
    if reader.caching is False:
        return "nothing is looked up in it: prefix caching is off (--enable-prefix-caching)"
    if reader.lookups and not reader.breaks:
        return "its pool has no group of full attention, or groups that are not modelled"
    why = ", ".join(reader.breaks)
    return f"{_NOTHING_LOOKED_UP}{f' ({why})' if why else ''}"


def _findings(reader: _Reader, stretch: _Stretch, wanted: Sequence[int]) -> Findings:
    usable, horizon = stretch.depths.usable_blocks, stretch.depths.horizon
    grid = sorted(set(wanted)) or sorted({max(1, int(share * usable)) for share in _SHARES})
    known = [capacity for capacity in grid if capacity <= horizon]
    curve = stretch.curve
    doubts = list(_doubts(reader, stretch))
    if len(known) < len(grid):
        doubts.append(
            f"capacities over {horizon:,} blocks are unknown: a recording covers them up to "
            f"{MOST_SCALE} times its pool"
        )
    lower_bounds = [] if stretch.is_whole else [c for c in known if c > usable]
    if lower_bounds:
        doubts.append(
            "the recording begins with a pool in use: what that had evicted before is not known, "
            f"so the hits of more than {usable:,} blocks are lower bounds"
        )
    return Findings(
        kind="recording",
        points=[
            Point(capacity, hits, curve.queried_blocks)
            for capacity, hits in zip(known, curve.hits_at(known), strict=True)
        ],
        lookups=stretch.lookups,
        queried_blocks=curve.queried_blocks,
        distinct_blocks=None,
        seconds=stretch.seconds,
        pool=Pool(
            usable_blocks=usable, block_size=stretch.block_size, hit_blocks=stretch.hit_blocks
        ),
        lower_bounds=lower_bounds,
        doubts=doubts,
    )


def _of_groups(
    file: Path, reader: _Reader, stretch: _Stretch, simulated: _SimulatedPools
) -> Findings:
    simulated.follower.settle()
    difference = abs(simulated.own_hits - stretch.hit_blocks)
    if difference > AGREE_RATIO * simulated.queried_blocks:
        raise WhatIfError(
            f"{file}: a simulated pool of its own size finds {simulated.own_hits:,} blocks, the "
            f"engine found {stretch.hit_blocks:,}: its groups of layers work otherwise, or it was "
            "recorded by a kvscope that does not report how steps are put together"
        )
    usable = simulated.usable
    lower_bounds = [] if stretch.is_whole else [c for c in simulated.capacities if c > usable]
    return Findings(
        kind="recording",
        points=[
            Point(capacity, hits, simulated.queried_blocks)
            for capacity, hits in zip(simulated.capacities, simulated.hits, strict=True)
        ],
        lookups=stretch.lookups,
        queried_blocks=simulated.queried_blocks,
        distinct_blocks=None,
        seconds=stretch.seconds,
        pool=Pool(
            usable_blocks=usable, block_size=stretch.block_size, hit_blocks=stretch.hit_blocks
        ),
        lower_bounds=lower_bounds,
        doubts=list(_doubts(reader, stretch)),
    )


def _doubts(reader: _Reader, stretch: _Stretch) -> Iterator[str]:
    for why, count in reader.breaks.items():
        times = "" if count == 1 else f" ({count} times)"
        yield f"{why}{times}: the curve restarts there"
    left_out = reader.lookups - stretch.lookups
    if left_out:
        yield f"{left_out:,} of {reader.lookups:,} lookups are not in the curve"
    yield from doubts_about(reader.recording)


def doubts_about(recording: Batches) -> Iterator[str]:
    """Defects of the whole file."""
    if recording.problem is not None:
        yield f"the recording is not whole: {recording.problem}"
    if recording.repeated:
        yield f"{recording.repeated:,} batches are in the file more than once, and count once"
    if recording.undecoded:
        yield f"{recording.undecoded:,} batches or events could not be decoded"
