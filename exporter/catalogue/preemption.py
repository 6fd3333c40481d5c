"""Preemption: how often, and what it costs."""

from typing import get_args

from exporter.catalogue.metric import ENGINE, Metric
from kvscope_events.vocabulary import PreemptionCause, PreemptionMode

PREEMPTION = (
    Metric(
        name="kvscope_preemptions_total",
        kind="counter",
        help="Running sequences that lost their blocks and wait again, counted when it happens.",
        unit="preemptions",
        group="preemption",
        labels={**ENGINE, "mode": get_args(PreemptionMode), "cause": get_args(PreemptionCause)},
        otel_name="kvscope.preemptions",
        aliases=("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
        events=("RequestPreempted",),
    ),
    Metric(
        name="kvscope_preemption_discarded_tokens_total",
        kind="counter",
        help="Tokens of preempted sequences whose KV had been computed or found in the cache.",
        unit="tokens",
        group="preemption",
        otel_name="kvscope.preemption.discarded_tokens",
        aliases=(
            "sglang:num_retracted_input_tokens_total",
            "sglang:num_retracted_output_tokens_total",
        ),
        events=("RequestPreempted",),
    ),
    Metric(
        name="kvscope_preemption_recomputed_tokens_total",
        kind="counter",
        help="Discarded tokens that the cache no longer held when their sequence resumed.",
        unit="tokens",
        group="preemption",
        otel_name="kvscope.preemption.recomputed_tokens",
        events=("RequestResumed",),
    ),
    Metric(
        name="kvscope_preemption_stalled_seconds_total",
        kind="counter",
        help="Time from preemption to resumption, added when a sequence resumes.",
        unit="seconds",
        group="preemption",
        otel_name="kvscope.preemption.stalled",
        events=("RequestResumed",),
    ),
)
