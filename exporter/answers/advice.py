"""`/api/advice`: what to change about an engine, at what price and for what gain."""

import msgspec

from exporter.adviser.gather import gather
from exporter.adviser.proposal import Proposal
from exporter.adviser.rank import advise
from exporter.answers.question import Asked, Question
from exporter.fold import Cache, Ledger, Preemption, Recent


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    """Length of the window that it rests on."""
    proposals: list[Proposal]
    """At most five, the best first; one for each option."""
    declined: list[str]
    """What is not proposed, and why; one sentence for each kind."""


def advice_of(asked: Asked) -> AdviceAnswer:
    facts = gather(asked)
    advice = advise(facts)
    return AdviceAnswer(
        seconds=facts.seconds,
        proposals=list(advice.proposals),
        declined=[declined.reason for declined in advice.declined],
    )


ADVICE: Question[AdviceAnswer] = Question(
    name="advice",
    summary="What to change about the server: at most five proposals with their price and gain.",
    events=("PoolCreated", "StepCompleted", "RequestPreempted", "RequestResumed"),
    folds=(Ledger, Recent, Cache, Preemption),
    read=advice_of,
)
