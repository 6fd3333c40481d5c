"""An engine's stream replayed as it comes: the ledger after every batch, for the witness's word."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kvscope_events.events import (
    Batch,
    EngineEvent,
    Hello,
    ObserverStopped,
    PoolSnapshot,
    StepCompleted,
)
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.state import Ledger
from tests.support.waiting import wait_for

SHOWN = 5
"""Differences that a failure prints."""


@dataclass
class Moment:
    """The ledger after one batch."""

    steps: int
    """Steps completed by then, since the replay began; empty ones do not count."""
    step: StepCompleted | None
    """The batch's own, if it ended one that computed something."""
    counts: tuple[int, int, int]
    """Active, cached and free blocks."""
    state: PoolSnapshot


class Replay:
    """Reads an endpoint until `close`; keeps the state after each batch, since pools are small."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.ledger = Ledger()
        self.moments: list[Moment] = []
        self.batches: list[Batch] = []
        self.kinds: Counter[str] = Counter()
        """Events by type."""
        self.hello: Hello | None = None
        self.stopped: str | None = None
        self.lost = 0
        self.contradictions: list[str] = []
        """Events that the ledger found impossible, and steps whose counts were others."""
        self._steps = 0
        self._source = WireSubscriber(endpoint)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def steps(self) -> int:
        return self._steps

    def wait_for_steps(self, count: int) -> None:
        wait_for(lambda: self._steps >= count, f"{count} steps of {self.endpoint}")

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._source.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            self._source.wait(0.05)
            while (taken := self._source.take()) is not None:
                batch, lost = taken
                self.lost += lost
                self.batches.append(batch)
                self._fold(batch)

    def _fold(self, batch: Batch) -> None:
        ledger = self.ledger
        step = None
        for event in batch.events:
            self.kinds[type(event).__name__] += 1
            before = ledger.imbalance if ledger.known else 0
            ledger.apply(event)
            if ledger.known and ledger.imbalance > before:
                self.contradictions.append(f"batch {batch.seq}: {event}")
            step = self._noted(event) or step
        if ledger.known:
            counts = (ledger.num_active, ledger.num_cached, ledger.num_free)
            self.moments.append(Moment(self._steps, step, counts, ledger.state()))

    def _noted(self, event: EngineEvent) -> StepCompleted | None:
        if isinstance(event, Hello):
            self.hello = event
            self.stopped = None
        elif isinstance(event, ObserverStopped):
            self.stopped = event.reason
            self.ledger.on_gap()
            self.moments.clear()  # their steps cannot be matched with those that were not observed
        elif isinstance(event, StepCompleted) and event.prefill_tokens + event.decode_tokens:
            self._steps += 1
            return event
        return None


def differences(replay: Replay, lines: list[dict[str, Any]]) -> list[str]:
    """Differences of the replayed state from what the witness saw in vLLM, after every call.

    Steps are matched from the last one backwards, so that a replay may have begun late.
    """
    witnessed = steps_of(lines)
    names = Names()
    found = []
    by_step: dict[int, list[Moment]] = {}
    for moment in replay.moments:
        by_step.setdefault(moment.steps, []).append(moment)
    number = replay.steps - witnessed
    for line in lines[1:]:  # the first says that the pool was created
        is_step = line["tokens"] > 0
        number += is_step
        moments = by_step.get(number, [])
        if is_step:
            moments = [moment for moment in moments if moment.step is not None]
        if not moments or number < 1:
            continue  # from before this replay, or, outside of steps, nothing changed
        problems = [_problem(moment, line, names, is_step) for moment in moments]
        if all(problems):
            found.append(f"after step {number} ({line['call']}): {problems[0]}")
    return found


def steps_of(lines: list[dict[str, Any]]) -> int:
    """Steps that computed something. The others, which only notify workers of ends, need not be
    reported."""
    return sum(line.get("tokens", 0) > 0 for line in lines)


class Names:
    """Our names of content against vLLM's hashes: each one stands for the same other, for ever."""

    def __init__(self) -> None:
        self._ours: dict[str, bytes] = {}
        self._theirs: dict[bytes, str] = {}

    def agree(self, theirs: str, ours: bytes | None) -> bool:
        if ours is None:
            return False
        return self._ours.setdefault(theirs, ours) == ours and (
            self._theirs.setdefault(ours, theirs) == theirs
        )


def _problem(moment: Moment, line: dict[str, Any], names: Names, is_step: bool) -> str:
    """The ledger's difference from the pool; empty: they agree."""
    counts = (line["active"], line["cached"], line["free"])
    if moment.counts != counts:
        return f"active, cached, free are {moment.counts}, in vLLM {counts}"
    if is_step and moment.step is not None:
        step = moment.step
        computed = (step.prefill_tokens + step.decode_tokens, step.running)
        if computed != (line["tokens"], line["running"]):
            expected = (line["tokens"], line["running"])
            return f"tokens and running sequences are {computed}, in vLLM {expected}"
    if "lru" not in line:
        return ""
    state = moment.state
    if state.lru != line["lru"]:
        return f"next to be evicted are {state.lru[:9]}…, in vLLM {line['lru'][:9]}…"
    references = {str(b): count for b, count in enumerate(state.ref_counts) if count}
    if references != line["references"]:
        return f"references are {references}, in vLLM {line['references']}"
    held = {str(block) for block, name in enumerate(state.hashes) if name is not None}
    if held != line["hashes"].keys():
        return f"content is in {held ^ line['hashes'].keys()} on one side only"
    for block, theirs in line["hashes"].items():
        if not names.agree(theirs, state.hashes[int(block)]):
            return f"block {block} is {state.hashes[int(block)]!r}, in vLLM {theirs}"
    return ""
