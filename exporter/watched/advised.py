"""The families on a page that rest on minutes, and are computed rarely: the incident, and the
adviser's proposals."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from prometheus_client.core import Metric as Family

from exporter.adviser.proposal import Proposal
from exporter.answers.advice import ADVICE, AdviceAnswer
from exporter.answers.question import ProcessMemory, UnknownError
from exporter.answers.why.question import WHY, WhyAnswer
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
        self._incidents: dict[Target, WhyAnswer] = {}
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
        known, incidents = self._known, self._incidents
        for target, shown in asked:
            if target in incidents:
                yield from _incident(shown.maker, incidents[target])
            if target in known and shown.up:
                yield from _families_of(shown.maker, known[target].proposals)

    def _ask(
        self, targets: Sequence[Target], processes: Sequence[ProcessMemory], machine: Machine
    ) -> None:
        """The results replace the old ones all at once: other pages may be rendered meanwhile."""
        known: dict[Target, AdviceAnswer] = {}
        incidents: dict[Target, WhyAnswer] = {}
        for target in targets:
            with suppress(UnknownError):
                incidents[target] = target.answer(WHY, machine, processes)
            # It concerns only one engine; the others still have answers.
            with suppress(UnknownError):
                answer = target.answer(ADVICE, machine, processes)
                if answer.idle_seconds is not None and answer.idle_seconds <= IDLE_SECONDS:
                    known[target] = answer
        self._known, self._incidents = known, incidents


def _incident(families: Families, answer: WhyAnswer) -> Iterator[Family]:
    """Empty while nothing is wrong."""
    for cause in answer.chain[:1]:
        yield families.column(
            "kvscope_incident_start_timestamp_seconds", {cause.kind: cause.at_seconds}
        )


def _families_of(families: Families, made: Sequence[Proposal]) -> Iterator[Family]:
    """Empty while nothing is proposed."""
    if made:
        yield families.column("kvscope_advice_value", {p.option: p.proposed for p in made})
        yield families.column(
            "kvscope_advice_saved_tokens_per_second",
            {p.option: p.gain.saved_tokens_per_second for p in made},
        )
