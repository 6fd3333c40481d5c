"""The incident that `kvscope why` sees: its possible causes, and the metric that names one."""

from typing import Literal

from kvscope_exporter.catalogue.metric import ENGINE, Metric

Kind = Literal[
    "neighbour",
    "slowed_down",
    "restarted",
    "cache_reset",
    "new_content",
    "retries",
    "more_requests",
    "longer_prompts",
    "longer_answers",
    "slow_steps",
    "stalled",
    "gone",
    "observer_stopped",
    "ledger",
    "out_of_memory",
    "sequence_limit",
    "pool_full",
    "token_budget",
    "transfer",
    "not_admitting",
    "preemptions",
    "interference",
    "prefill",
    "long_steps",
    "host",
    "cache_too_small",
    "below_block",
    "failures",
    "refusals",
    "latency",
]
"""In the order in which they are named when they weigh the same."""

PHRASES: dict[str, str] = {
    "neighbour": "other processes on the GPU",
    "slowed_down": "clocks held down",
    "restarted": "a restart",
    "cache_reset": "an emptied cache",
    "new_content": "prompts that begin differently",
    "retries": "requests that are given up and come again",
    "more_requests": "more requests",
    "longer_prompts": "longer prompts",
    "longer_answers": "longer answers",
    "slow_steps": "slower steps",
    "stalled": "no steps, although requests wait",
    "gone": "an engine that is silent",
    "observer_stopped": "an observer that is off",
    "ledger": "blocks that differ from the engine's own count",
    "out_of_memory": "steps without device memory",
    "sequence_limit": "the limit on sequences",
    "pool_full": "a full pool",
    "token_budget": "the token budget of a step",
    "transfer": "content that is still loading",
    "not_admitting": "a scheduler that admits nobody",
    "preemptions": "preemptions",
    "interference": "prompts that hold up other requests",
    "prefill": "prompts that take long to compute",
    "long_steps": "steps that take long for their work",
    "host": "time between the steps",
    "cache_too_small": "a cache that is too small",
    "below_block": "prompts that are shorter than a block",
    "failures": "requests that failed",
    "refusals": "requests refused by a full queue",
    "latency": "late first tokens, for a reason that the server does not report",
}
"""Each in words."""

INCIDENT = (
    Metric(
        name="kvscope_incident_age_seconds",
        kind="gauge",
        help="Time since the trouble started whose cause `kvscope why` names first.",
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
