"""The preemptions of an engine one by one: who took the victim's blocks, and how it went on."""

from collections.abc import Iterator
from typing import NamedTuple

from kvscope.export.course import Span
from kvscope_events.events import Batch, RequestPreempted
from kvscope_exporter.state.preemption import Preemption, Victim


class TakenBlocks(NamedTuple):
    """Blocks of a waiting victim that another sequence was the first to get."""

    victim: int
    taker: int | None
    """None: not reported."""
    blocks: int


class Victims:
    """Follows victims until they resume or end; the definitions are those of `/api/preemptions`."""

    def __init__(self) -> None:
        self._fold = Preemption()
        self._waiting: list[tuple[Victim, dict[int | None, int]]] = []

    def follow(self, batch: Batch, span: Span) -> None:
        """Apply a batch of this time."""
        fold = self._fold
        for event in batch.events:
            fold.on_batch(Batch(batch.seq, batch.time_ns, [event], span.begin_ns, batch.arrived_ns))
            if isinstance(event, RequestPreempted):  # the history forgets; here none is left out
                self._waiting.append((fold.history[-1], {}))

    def takings(self) -> Iterator[TakenBlocks]:
        """Blocks taken since the last call."""
        for victim, known in self._waiting:
            for taker, blocks in (victim.taken_by or {}).items():
                more = blocks - known.get(taker, 0)
                if more > 0:
                    known[taker] = blocks
                    yield TakenBlocks(victim.preempted.sequence, taker, more)

    def settled(self) -> Iterator[Victim]:
        """Victims that have resumed or ended, or are lost; each is given once."""
        waiting = [each for each in self._waiting if each[0].state == "waiting"]
        if len(waiting) < len(self._waiting):
            yield from [victim for victim, _ in self._waiting if victim.state != "waiting"]
            self._waiting = waiting

    def waiting(self) -> Iterator[Victim]:
        """Victims that are still waiting."""
        return (victim for victim, _ in self._waiting)

    def cut(self) -> None:
        """Batches are missing: the fate of those that wait is unknown."""
        self._fold.on_gap()
