"""Preemption: its frequency and its cost."""

from typing import get_args

from kvscope_events.vocabulary import PreemptionCause, PreemptionMode
from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric

_BY_KIND: Labels = {**ENGINE, "mode": get_args(PreemptionMode), "cause": get_args(PreemptionCause)}
_UNATTRIBUTED = "Resumptions whose preemption was in lost events have neither mode nor cause."

PREEMPTION = (
    Metric(
        name="kvscope_preemptions_total",
        kind="counter",
        help="Running sequences that lost their blocks and wait again, by mode and cause.",
        notes="Counted when it happens. With mode swap their KV was copied to the host before, "
        "where the engine can do that. SGLang calls it a retraction.",
        unit="preemptions",
        group="preemption",
        lean_without=("mode", "cause"),
        labels=_BY_KIND,
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
        detail="full",
        labels=_BY_KIND,
        otel_name="kvscope.preemption.discarded_tokens",
        aliases=(
            "sglang:num_retracted_input_tokens_total",
            "sglang:num_retracted_output_tokens_total",
        ),
        events=("RequestPreempted",),
    ),
    Metric(
        name="kvscope_preemption_found_tokens_total",
        kind="counter",
        help="Preempted tokens found again in the cache or a connector at the resumption.",
        notes=_UNATTRIBUTED,
        unit="tokens",
        group="preemption",
        detail="full",
        labels=_BY_KIND,
        otel_name="kvscope.preemption.found_tokens",
        events=("RequestPreempted", "RequestResumed"),
    ),
    Metric(
        name="kvscope_preemption_recomputed_tokens_total",
        kind="counter",
        help="Preempted tokens to compute again, by mode and cause: wasted prefill.",
        notes=_UNATTRIBUTED,
        unit="tokens",
        group="preemption",
        lean_without=("mode", "cause"),
        labels=_BY_KIND,
        otel_name="kvscope.preemption.recomputed_tokens",
        events=("RequestPreempted", "RequestResumed"),
    ),
    Metric(
        name="kvscope_preemption_stalled_seconds_total",
        kind="counter",
        help="Time that preempted sequences waited, by mode and cause.",
        notes=_UNATTRIBUTED,
        unit="seconds",
        group="preemption",
        lean_without=("mode", "cause"),
        labels=_BY_KIND,
        otel_name="kvscope.preemption.stalled",
        events=("RequestPreempted", "RequestResumed", "SequenceFinished"),
    ),
)
