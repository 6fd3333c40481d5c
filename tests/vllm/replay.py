"""Replays an observed stream and compares it, at every step, with the pool that it came from.

Runs in the Python of a vLLM: it needs msgspec, and of our modules those that need no more.
"""

import time
from collections import Counter
from typing import Any

from kvscope_events.bus import EventBus
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    FirstToken,
    ObserverStopped,
    PoolSnapshot,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.wire.frame import decode_batch, encode_batch
from kvscope_exporter.state.ledger import Ledger

MAX_EXAMPLES = 8


class Replay:
    """The state from the events; `compare` reports where the pool differs."""

    def __init__(self, bus: EventBus, names: Any) -> None:
        self.ledger = Ledger()
        self.names = names
        self.steps = 0
        self.compared = 0
        self.differing: Counter[str] = Counter()
        self.violations = 0
        self.examples: list[str] = []
        self.events: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.held: dict[int, Counter[int]] = {}
        """References by sequence and block."""
        self.times: dict[int, list[str]] = {}
        self.queried = self.hit = 0
        self.output_tokens = self.emitted = 0
        self.prefill = self.decode = 0
        self.finished: dict[int, SequenceFinished] = {}
        self._subscription = bus.subscribe(1 << 20)
        self._subscription.request_snapshot()
        self._pending: list[Any] = []
        self.batches: list[Batch] = []

    def take(self) -> None:
        """Apply what has been flushed."""
        while (taken := self._subscription.take()) is not None:
            batch, lost = taken
            assert not lost
            # Like a reader, with bounds checked.
            again, unknown = decode_batch(encode_batch(batch))
            assert not unknown
            self._apply(again)

    def _apply(self, batch: Batch) -> None:
        self.batches.append(batch)
        for event in batch.events:
            self.events[type(event).__name__] += 1
            before = self.ledger.violations
            if isinstance(event, PoolSnapshot) and self.ledger.known:
                state = self.ledger.state()
                for part in ("ref_counts", "hashes", "lru"):
                    if getattr(state, part) != getattr(event, part):
                        self._differs(f"snapshot {part}", batch.seq)
            handler = self.ledger.handlers.get(type(event))
            if handler is not None:
                handler(event)
            if isinstance(event, StepCompleted) and self.ledger.imbalance:
                self._differs("imbalance", self.ledger.imbalance)
            if self.ledger.violations > before:
                self.violations += 1
                self._example(f"{batch.seq}: {str(event)[:200]}")
            self._owner(event)
            self._request(event)
            if isinstance(event, ObserverStopped):
                self._begin_again()

    def snapshot_comes(self) -> bool:
        """Whether a reader that comes while the engine idles gets the state; it is compared."""
        self.take()
        before = self.events["PoolSnapshot"]
        self._subscription.request_snapshot()
        until = time.monotonic() + 5
        while self.events["PoolSnapshot"] == before and time.monotonic() < until:
            self._subscription.wait(0.1)
            self.take()
        return self.events["PoolSnapshot"] > before

    def compare(self, pool: Any) -> None:
        """The whole pool with the ledger."""
        self.take()
        if not self.ledger.known:
            return
        self.compared += 1
        state, reserved = self.ledger.state(), self.ledger.reserved
        refs = [0 if b.block_id < reserved else b.ref_cnt for b in pool.blocks]
        hashes = [
            None
            if b.block_hash is None or b.block_id < reserved
            else self.names.of_block(b.block_hash)
            for b in pool.blocks
        ]
        queue = pool.free_block_queue.get_all_free_blocks()
        lru = [b.block_id for b in queue if b.block_hash is not None]
        for part, ours, theirs in (
            ("references", state.ref_counts, refs),
            ("names", state.hashes, hashes),
            ("lru", state.lru, lru),
        ):
            if ours != theirs:
                pairs = enumerate(zip(ours, theirs, strict=False))
                where = [index for index, (a, b) in pairs if a != b][:5]
                self._differs(part, where)

    def left_over(self) -> dict[int, dict[int, int]]:
        """References that sequences got and never gave back."""
        return {s: dict(+held) for s, held in self.held.items() if +held}

    def _begin_again(self) -> None:
        """Nothing is known until the next state."""
        self.ledger.on_gap()
        self.held.clear()
        self.times.clear()

    def _owner(self, event: Any) -> None:
        if isinstance(event, (BlocksAllocated, BlocksShared, BlocksReleased)):
            self.causes[f"{type(event).__name__} {event.cause}"] += 1
            if event.sequence is None:
                self.causes[f"{type(event).__name__} without owner"] += 1
                return
            held = self.held.setdefault(event.sequence, Counter())
            if isinstance(event, BlocksReleased):
                held.subtract([*event.cached, *event.free, *event.shared])
                if min(held.values(), default=0) < 0:
                    self._differs("gave back more than it had", event.sequence)
                    held += Counter()
            else:
                held.update(event.blocks)

    def _request(self, event: Any) -> None:
        if isinstance(event, PrefixLookup):
            self.queried += event.queried_tokens
            self.hit += event.hit_blocks * self.ledger.block_size
        elif isinstance(event, StepCompleted):
            self.steps += 1
            self.emitted += len(event.emitted)
            produced = event.output_tokens
            self.output_tokens += len(event.emitted) if produced is None else produced
            each = event.emitted_tokens or [1] * len(event.emitted)
            if (len(each), sum(each)) != (len(event.emitted), produced or len(event.emitted)):
                self._differs("emitted tokens", len(each))
            self.prefill += event.prefill_tokens
            self.decode += event.decode_tokens
        elif isinstance(event, SequenceFinished):
            self.finished[event.sequence] = event
        elif isinstance(
            event,
            (
                RequestArrived,
                RequestScheduled,
                RequestPreempted,
                RequestResumed,
                FirstToken,
                RequestFinished,
            ),
        ):
            self._ordered(event)

    def _ordered(self, event: Any) -> None:
        """Events of one request come in an order that makes sense."""
        name = type(event).__name__
        seen = self.times.setdefault(event.request, [])
        last = next((n for n in reversed(seen) if n != "FirstToken"), None)
        allowed = {
            "RequestArrived": (None,),
            "RequestScheduled": ("RequestArrived",),
            "RequestPreempted": ("RequestScheduled", "RequestResumed"),
            "RequestResumed": ("RequestPreempted",),
            "FirstToken": ("RequestScheduled", "RequestPreempted", "RequestResumed"),
            "RequestFinished": (
                "RequestArrived",
                "RequestScheduled",
                "RequestPreempted",
                "RequestResumed",
            ),
        }[name]
        if last not in allowed or (name == "FirstToken" and name in seen):
            self._differs("order", f"{event.request}: {seen[-4:]} {name}")
        seen.append(name)

    def _differs(self, what: str, where: Any) -> None:
        self.differing[what] += 1
        self._example(f"step {self.steps}: {what} {where}")

    def _example(self, text: str) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(text)
