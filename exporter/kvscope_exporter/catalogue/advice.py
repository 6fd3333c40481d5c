"""The adviser's current proposals."""

from kvscope_exporter.adviser.proposal import OPTIONS
from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric

_BY_OPTION: Labels = {**ENGINE, "option": OPTIONS}
_EVENTS = ("PoolCreated", "StepCompleted", "RequestPreempted", "RequestResumed")

ADVICE = (
    Metric(
        name="kvscope_advice_value",
        kind="gauge",
        help="Proposed value of a server option; at most five options, absent without a proposal.",
        notes="Absent also once the engine has been idle for a minute. `kvscope advise` prints the "
        "reason, the price and the gain.",
        unit="",
        group="advice",
        labels=_BY_OPTION,
        otel_name="kvscope.advice.value",
        events=_EVENTS,
    ),
    Metric(
        name="kvscope_advice_saved_tokens_per_second",
        kind="gauge",
        help="Prompt tokens per second that a proposal would save, as an estimate.",
        notes="An average over the last five minutes of load. No more than this while sequences "
        "wait, no less while what a larger pool would hold is not known; `kvscope advise` says "
        "which.",
        unit="",
        group="advice",
        labels=_BY_OPTION,
        otel_name="kvscope.advice.saved_tokens",
        events=_EVENTS,
    ),
)
