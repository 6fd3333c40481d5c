"""The incident that `kvscope why` sees: its possible causes, and the metric that names one."""

from typing import Literal

from kvscope_exporter.catalogue.metric import ENGINE, Metric

Kind = Literal[
    "neighbour",
    "slowed_down",
    "restarted",
    "cache_reset",
    "new_content",
    "cache_too_small",
    "longer_prompts",
    "longer_answers",
    "retries",
    "more_requests",
    "slow_steps",
    "stalled",
    "gone",
    "observer_stopped",
    "ledger",
    "pool_full",
    "out_of_memory",
    "preemptions",
    "queue",
    "latency",
    "slow_tokens",
    "given_up",
    "failures",
    "refusals",
]
"""In the order in which they are named when they begin at the same time: causes first."""

PHRASES: dict[str, str] = {
    "neighbour": "other processes on the GPU",
    "slowed_down": "clocks held down",
    "restarted": "a restart",
    "cache_reset": "an emptied cache",
    "new_content": "prompts that begin differently",
    "cache_too_small": "a cache that is too small",
    "longer_prompts": "longer prompts",
    "longer_answers": "longer answers",
    "retries": "requests that are given up and come again",
    "more_requests": "more requests",
    "slow_steps": "slower steps",
    "stalled": "no steps, although requests wait",
    "gone": "an engine that is silent",
    "observer_stopped": "an observer that is off",
    "ledger": "blocks that differ from the engine's own count",
    "pool_full": "a full pool",
    "out_of_memory": "steps without device memory",
    "preemptions": "preemptions",
    "queue": "a longer queue",
    "latency": "late first tokens",
    "slow_tokens": "slow further tokens",
    "given_up": "requests that their clients gave up",
    "failures": "requests that failed",
    "refusals": "requests refused by a full queue",
}
"""Each in words."""

INCIDENT = (
    Metric(
        name="kvscope_incident_age_seconds",
        kind="gauge",
        help="Time since the trouble began whose cause `kvscope why` names first; absent while "
        "nothing is wrong that it sees.",
        notes="At most one series for each engine, up to ten seconds old. `kvscope why` prints the "
        "whole sentence: what followed, what it cost, what to do. Causes: "
        + "; ".join(f"`{kind}`, {text}" for kind, text in PHRASES.items())
        + ".",
        unit="seconds",
        group="incident",
        labels={**ENGINE, "cause": tuple(PHRASES)},
        otel_name="kvscope.incident.age",
        events=("StepCompleted",),
    ),
)
