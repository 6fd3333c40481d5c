"""The families on a page that rest on minutes, and are computed rarely: the incident, and the
adviser's proposals."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric as Family

from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.answers.advice import ADVICE, AdviceAnswer
from kvscope_exporter.answers.diagnosis.question import WHY, WhyAnswer
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.asking import PageQuestions
from kvscope_exporter.targets.engine_page import EnginePage
from kvscope_exporter.targets.reply import memory_of
from kvscope_exporter.targets.target import Target

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
        self._asked_ns: int | None = None

    def asking(self, targets: Sequence[Target], machine: Machine) -> PageQuestions | None:
        """Questions for the engines of this page, asked while their parts are read, so that a
        replay of the page reads the same; None: the last answers are still good."""
        now_ns = self._clock.now().monotonic_ns
        if self._asked_ns is not None and now_ns - self._asked_ns < MAX_AGE_NS:
            return None
        self._asked_ns = now_ns
        return PageQuestions((WHY, ADVICE), machine, memory_of(targets))

    def collect(
        self, asked: Sequence[tuple[Target, EnginePage]], *, is_new: bool
    ) -> Iterator[Family]:
        """asked: the engines of this page, each with its part. is_new: with what was asked."""
        if is_new:
            self._answer(asked)
        known, incidents = self._known, self._incidents
        for target, shown in asked:
            if target in incidents:
                yield from _incident(shown.maker, incidents[target])
            if target in known and shown.up:
                yield from _families_of(shown.maker, known[target].proposals)

    def _answer(self, asked: Sequence[tuple[Target, EnginePage]]) -> None:
        """The results replace the old ones all at once: other pages may be rendered meanwhile."""
        known: dict[Target, AdviceAnswer] = {}
        incidents: dict[Target, WhyAnswer] = {}
        for target, shown in asked:
            if WHY.name in shown.read:
                incidents[target] = WHY.finish(shown.read[WHY.name])
            if ADVICE.name in shown.read:
                answer = ADVICE.finish(shown.read[ADVICE.name])
                if answer.idle_seconds is not None and answer.idle_seconds <= IDLE_SECONDS:
                    known[target] = answer
        self._known, self._incidents = known, incidents


def _incident(families: Families, answer: WhyAnswer) -> Iterator[Family]:
    """Empty while nothing is wrong."""
    for cause in answer.chain[:1]:
        age = families.since(cause.at_seconds)
        yield families.column("kvscope_incident_age_seconds", {cause.kind: age})


def _families_of(families: Families, made: Sequence[Proposal]) -> Iterator[Family]:
    """Empty while nothing is proposed."""
    if made:
        yield families.column("kvscope_advice_value", {p.option: p.proposed for p in made})
        yield families.column(
            "kvscope_advice_saved_tokens_per_second",
            {p.option: p.gain.saved_tokens_per_second for p in made},
        )
