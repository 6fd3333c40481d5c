"""Traffic of a recorded engine: its calls with their content by name, its steps, its options."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kvscope.twin.replay import RESET, Call, figures
from kvscope.whatif.batches import Batches, Stream, Taken
from kvscope.whatif.findings import WhatIfError
from kvscope_events.events import (
    BlocksCached,
    EngineEvent,
    FirstToken,
    Hello,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
    RequestArrived,
    RequestPreempted,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)

NAME_BYTES = 7
_GIVEN_UP = ("abort", "error")


class Step(NamedTuple):
    """A recorded step; times in seconds."""

    end: float
    duration: float
    gap: float | None
    """Since the end of the step before; None: the engine had idled."""
    prefill: int
    decode: int
    running: int
    waiting: int
    actions: list[int]
    """The changes that came before it: see `replay.lockstep`."""


@dataclass
class Traffic:
    """One stretch of a recording, without a break."""

    hello: Hello | None = None
    pool: PoolCreated | PoolSnapshot | None = None
    is_counted: bool = False
    begins_empty: bool = False
    calls: dict[int, Call] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    doors: list[float] = field(default_factory=list)
    """Seconds from the front end to the scheduler, of each call for which they are known."""
    strangers: set[int] = field(default_factory=set)
    """Sequences that were there before it."""
    preemptions: int = 0
    queried: int = 0
    hit: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of what a twin does not model: tokens that were "loaded" or "drafted", calls "adapted"
    by an adapter, further "samples" of a call, and lookups "unnamed"."""
    priorities: set[int | None] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        return self.steps[-1].end - self.steps[0].end if self.steps else 0.0

    @property
    def end(self) -> float:
        return self.steps[-1].end

    @property
    def door(self) -> float:
        """Seconds from the front end to a scheduler that waits for no step."""
        ordered = sorted(self.doors)
        return ordered[len(ordered) // 10] if ordered else 0.0

    @property
    def largest(self) -> int:
        """Tokens of its largest step."""
        return max((step.prefill + step.decode for step in self.steps), default=0)

    def measured(self) -> dict[str, float | None]:
        """The figures as they were."""
        calls = list(self.calls.values())
        return figures(calls, self.preemptions, self.queried, self.hit)


class _Reader:
    """Follows one stream; a break begins another stretch."""

    def __init__(self) -> None:
        self.breaks: list[str] = []
        self.best = self._begin(None, None)
        self._run = 0

    def _begin(self, hello: Hello | None, pool: PoolCreated | PoolSnapshot | None) -> Traffic:
        self._now = Traffic(hello, pool)
        self._place: dict[bytes, int] = {}
        self._actions: list[int] = []
        self._taken: dict[int, tuple[int, int | None]] = {}  # priority, nanoseconds
        self._answers: dict[bytes, int] = {}
        return self._now

    def read(self, taken: Taken) -> None:
        now = self._now
        if taken.lost or taken.stream.run != self._run:
            if now.steps:
                why = f"{taken.lost:,} batches are missing" if taken.lost else "a restart"
                self.breaks.append(why)
            self._run = taken.stream.run
            now = self._begin(now.hello, now.pool)
        at = taken.batch.time_ns / 1e9
        for event in taken.batch.events:
            self._take(event, at)
        if len(self._now.steps) > len(self.best.steps) or not self.best.steps:
            self.best = self._now

    def _take(self, event: EngineEvent, at: float) -> None:
        now = self._now
        match event:
            case StepCompleted():
                self._step(event, at)
            case PrefixLookup():
                self._look_up(event)
            case BlocksCached():
                self._name(event)
            case RequestArrived():
                self._taken[event.request] = event.priority or 0, event.taken_ns
                now.priorities.add(event.priority)
                now.counts["adapted"] += bool(event.adapter)
            case SequenceAdded():
                self._add(event, at)
            case FirstToken():
                call = now.calls.get(event.request)
                if call is not None and self._taken.get(event.request, (0, None))[1] is None:
                    call.came = at - event.elapsed_ns / 1e9
            case SequenceFinished():
                self._finish(event)
            case RequestPreempted():
                now.preemptions += 1
            case PrefixCacheReset():
                self._actions.append(RESET)
            case Hello() if event.worker is None:
                now.hello = event
            case PoolCreated():
                if now.steps:
                    now = self._begin(now.hello, event)
                now.pool, now.begins_empty = event, True
            case PoolSnapshot() if now.pool is None:
                now.pool = event
            case PoolCounted():
                now.is_counted = True
            case _:
                pass

    def _add(self, event: SequenceAdded, at: float) -> None:
        now = self._now
        priority, taken_ns = self._taken.get(event.request, (0, None))
        came = at
        if taken_ns is not None:
            came -= taken_ns / 1e9
            now.doors.append(taken_ns / 1e9)
        now.counts["samples"] += event.sequence != event.request
        now.calls[event.sequence] = Call(
            event.sequence, came, event.prompt_tokens, event.max_tokens, None, priority=priority
        )
        self._actions.append(event.sequence)

    def _look_up(self, event: PrefixLookup) -> None:
        now = self._now
        now.counts["unnamed"] += not event.named
        now.counts["loaded"] += event.loaded_tokens
        if not event.resumed and now.pool is not None:
            now.queried += event.queried_tokens
            now.hit += event.hit_blocks * now.pool.block_size
        call = now.calls.get(event.sequence)
        if call is None:
            return
        self._place.update((name, at) for at, name in enumerate(event.hashes))
        self._put(call, 0, event.hashes)
        if not event.resumed:  # it repeats another call's answer: its client awaited that
            answers = (self._answers.get(name) for name in reversed(event.hashes))
            call.after = next((number for number in answers if number is not None), None)

    def _name(self, event: BlocksCached) -> None:
        call = None if event.sequence is None else self._now.calls.get(event.sequence)
        begin = 0 if event.parent is None else self._place.get(event.parent, -2) + 1
        if call is None or begin < 0 or self._now.pool is None:
            return
        self._place.update((name, at) for at, name in enumerate(event.hashes, begin))
        self._put(call, begin, event.hashes)
        size = self._now.pool.block_size
        for at, name in enumerate(event.hashes, begin):
            if (at + 1) * size > call.prompt:
                self._answers[name] = call.number

    @staticmethod
    def _put(call: Call, begin: int, names: list[bytes]) -> None:
        call.names += [None] * (begin + len(names) - len(call.names))
        words = (int.from_bytes(name[:NAME_BYTES], "big") for name in names)
        call.names[begin : begin + len(names)] = words

    def _finish(self, event: SequenceFinished) -> None:
        call = self._now.calls.get(event.sequence)
        if call is None:
            self._now.strangers.add(event.sequence)
            return
        call.produced = event.output_tokens
        if event.reason in _GIVEN_UP:
            call.patience = event.elapsed_ns / 1e9
        else:
            call.output = event.output_tokens
        if event.reason in (*_GIVEN_UP, "stop_string_or_abort"):
            self._actions.append(-call.number)

    def _step(self, event: StepCompleted, at: float) -> None:
        now, seconds = self._now, event.duration_ns / 1e9
        before = now.steps[-1] if now.steps else None
        gap = None
        if before is not None and before.running + before.waiting:
            gap = max(0.0, at - seconds - before.end)
        now.counts["drafted"] += event.drafted_tokens or 0
        now.steps.append(
            Step(
                *(at, seconds, gap, event.prefill_tokens, event.decode_tokens),
                *(event.running, event.waiting, self._actions),
            )
        )
        self._actions = []
        counts = event.emitted_tokens or [1] * len(event.emitted)
        for number, count in zip(event.emitted, counts, strict=True):
            call = now.calls.get(number)
            if call is None:
                now.strangers.add(number)
                continue
            call.times += [at] * count
            if call.output is None:
                call.produced += count


def traffic_of(file: Path) -> tuple[Traffic, list[str]]:
    """The longest stretch of the recording, and doubts about it.

    Raises WhatIfError, RecordingError or OSError.
    """
    recording = Batches(file)
    readers: dict[Stream, _Reader] = {}
    for taken in recording:
        readers.setdefault(taken.stream, _Reader()).read(taken)
    found = [reader for reader in readers.values() if reader.best.steps]
    if not found:
        raise WhatIfError(f"{file}: no step in it: it is of a worker, or nothing was served")
    if len(found) > 1:
        raise WhatIfError(
            f"{file}: the recording holds {len(found)} engines, and a twin is of one: record one "
            "of the sockets (kvscope record)"
        )
    (reader,) = found
    return reader.best, list(_doubts(recording, reader))


def _doubts(recording: Batches, reader: _Reader) -> Iterator[str]:
    traffic = reader.best
    if recording.problem is not None:
        yield f"the recording is not whole: {recording.problem}"
    if reader.breaks:
        yield f"only the longest part between breaks is replayed ({', '.join(reader.breaks[:3])})"
    if not traffic.begins_empty:
        yield (
            "the recording begins with a pool in use: what that held is not replayed, so hits are "
            "too few at first"
        )
    if traffic.strangers:
        yield f"{len(traffic.strangers):,} calls came before the recording, and are not replayed"
    for name, doubt in (
        ("adapted", "calls used adapters, whose limits are not modelled"),
        ("samples", "further samples (n) are replayed as calls of their own"),
    ):
        if count := traffic.counts[name]:
            yield f"{count:,} {doubt}"
