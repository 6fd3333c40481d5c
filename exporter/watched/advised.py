"""The adviser's families on a page; computed rarely, since a proposal rests on minutes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from prometheus_client.core import Metric as Family

from exporter.adviser.proposal import Proposal
from exporter.answers.advice import ADVICE, AdviceAnswer
from exporter.answers.question import ProcessMemory, UnknownError
from exporter.clock import Clock
from exporter.collect.families import Families
from exporter.machine.machine import Machine
from exporter.watched.reply import memory_of
from exporter.watched.target import EnginePage, Target

IDLE_SECONDS = 60.0
"""An engine without a step for this long is idle, and its page, which shows the present, has no
advice.
"""
MAX_AGE_NS = 10_000_000_000
"""Time for which an answer is reused: it takes longer than the rest of an engine's part."""


class AdviceCollector:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Target, AdviceAnswer] = {}
        self.asked_ns: int | None = None
        """Moment of the page for which the adviser was last asked."""

    def collect(
        self,
        asked: Sequence[tuple[Target, EnginePage]],
        targets: Sequence[Target],
        machine: Machine,
    ) -> Iterator[Family]:
        """asked: the engines of this page, each with its part."""
        now_ns = self._clock.now().monotonic_ns
        if self.asked_ns is None or now_ns - self.asked_ns >= MAX_AGE_NS:
            self._ask([target for target, _ in asked], memory_of(targets), machine)
            self.asked_ns = now_ns
        known = self._known
        for target, shown in asked:
            if target in known and shown.up:
                yield from _families_of(shown.maker, known[target].proposals)

    def _ask(
        self, targets: Sequence[Target], processes: Sequence[ProcessMemory], machine: Machine
    ) -> None:
        """The results replace the old ones all at once: other pages may be rendered meanwhile."""
        known: dict[Target, AdviceAnswer] = {}
        for target in targets:
            # It concerns only one engine; the others still have answers.
            with suppress(UnknownError):
                answer = target.answer(ADVICE, machine, processes)
                if answer.idle_seconds is not None and answer.idle_seconds <= IDLE_SECONDS:
                    known[target] = answer
        self._known = known


def _families_of(families: Families, made: Sequence[Proposal]) -> Iterator[Family]:
    """Empty while nothing is proposed."""
    if made:
        yield families.column("kvscope_advice_value", {p.option: p.proposed for p in made})
        yield families.column(
            "kvscope_advice_saved_tokens_per_second",
            {p.option: p.gain.saved_tokens_per_second for p in made},
        )
