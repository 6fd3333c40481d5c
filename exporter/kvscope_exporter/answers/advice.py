"""`/api/advice`: proposals for an engine, with price and gain."""

import msgspec

from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.answers.gather import gather
from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.state import Cache, Ledger, LoadWindow, Preemption, Tiers, TimeLedger
from kvscope_exporter.state.simulation import Shadows

MAX_IDLE_SECONDS = 300.0
"""Time without a step after which earlier observations no longer justify advice."""


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    """Length of the observed window: all rates are averages over it."""
    end_seconds: float | None
    """Unix time of its end, the engine's last step; None: there was no step."""
    idle_seconds: float | None
    """Time since then."""
    proposals: list[Proposal]
    """At most five, the best first; one for each option."""
    declined: list[str]
    """Kinds that are not proposed, and why; one sentence each."""
    blocked: list[str] = []
    """Those of them that would bring something, but a fact or room that they need is missing."""
    not_judged: list[str] = []
    """Those of them that could not be judged."""
    unknown: str | None = None
    """Advice that is impossible for this engine, whatever its load; one sentence."""


def advice_of(asked: QueryContext) -> AdviceAnswer:
    """Raises UnknownError for an engine that has been idle for long."""
    facts = gather(asked)
    end_ns = asked.folds[LoadWindow].last_step_ns
    end_seconds = idle_seconds = None
    if end_ns is not None:
        monotonic_ns = asked.clock.now().monotonic_ns
        idle_seconds = max(0, asked.folds[Cache].now_ns(monotonic_ns) - end_ns) / 1e9
        end_seconds = asked.clock.wall_seconds(monotonic_ns) - idle_seconds
        if idle_seconds > MAX_IDLE_SECONDS:
            raise UnknownError(
                f"the engine has been idle for {idle_seconds / 60:,.0f} minutes: advice rests on "
                "what it did in the last five; ask again under load"
            )
    advice = advise(facts)
    return AdviceAnswer(
        seconds=facts.seconds,
        end_seconds=end_seconds,
        idle_seconds=idle_seconds,
        proposals=list(advice.proposals),
        declined=[declined.reason for declined in advice.declined],
        blocked=[each.reason for each in advice.declined if each.standing == "blocked"],
        not_judged=[each.reason for each in advice.declined if each.standing == "not known"],
        unknown=advice.unknown,
    )


ADVICE: Question[AdviceAnswer] = Question(
    name="advice",
    summary="What to change about the server: at most five proposals with their price and gain.",
    events=("PoolCreated", "StepCompleted", "RequestPreempted", "RequestResumed"),
    folds=(Ledger, LoadWindow, Cache, Shadows, Preemption, Tiers, TimeLedger),
    read=advice_of,
)
