"""Present troubles of a server, as triggers of its flight recorder; few, and each is certain."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from kvscope_exporter.clock import Clock
from kvscope_exporter.state import DeviceMemory, HelloTracker, Ledger
from kvscope_exporter.state.preemption import Preemption
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.targets.target import Target

Trigger = Literal["out_of_memory", "engine_gone", "ledger", "preemption_storm", "observer_stopped"]

STORM_PREEMPTIONS = 30
"""Preemptions within `STORM_NS` that are a storm."""
STORM_NS = 30 * 10**9


class Troubles:
    """Called once a second; compares with what it saw before."""

    def __init__(
        self, targets: Callable[[], Sequence[Target]], presence: Presence, clock: Clock
    ) -> None:
        self._targets = targets
        self._presence = presence
        self._clock = clock
        self._preemptions: deque[tuple[int, int]] = deque()
        self._out_of_memory = 0
        self._oom_until_ns = 0

    def __call__(self) -> dict[Trigger, str]:
        """The present troubles, by trigger."""
        found: dict[Trigger, str] = {}
        now_ns = self._clock.monotonic_ns()
        preemptions = out_of_memory = 0
        for target in self._targets():
            if target.is_content:
                continue
            folds = target.folds
            if folds[HelloTracker].stopped is not None:
                found["observer_stopped"] = f"the observer stopped: {folds[HelloTracker].stopped}"
            ledger = folds[Ledger]
            if ledger.known and target.source.state_known and ledger.imbalance:
                found["ledger"] = f"{ledger.imbalance} blocks differ from the engine's own count"
            out_of_memory += sum(folds[DeviceMemory].oom_events.values())
            costs = folds[Preemption].costs.values()
            preemptions += sum(cost.preemptions for cost in costs)
        if out_of_memory > self._out_of_memory:
            self._oom_until_ns = now_ns + STORM_NS
        self._out_of_memory = out_of_memory
        if now_ns < self._oom_until_ns:
            found["out_of_memory"] = f"{out_of_memory} steps ran out of memory since the start"
        recent = self._recent(preemptions, now_ns)
        if recent >= STORM_PREEMPTIONS:
            found["preemption_storm"] = f"{recent} preemptions in {STORM_NS // 10**9} s"
        if self._presence.state == "gone":
            found["engine_gone"] = "the server has gone silent"
        return found

    def _recent(self, preemptions: int, now_ns: int) -> int:
        seen = self._preemptions
        if seen and preemptions < seen[-1][1]:  # a new engine counts from 0
            seen.clear()
        seen.append((now_ns, preemptions))
        while seen[0][0] < now_ns - STORM_NS:
            seen.popleft()
        return preemptions - seen[0][1]
