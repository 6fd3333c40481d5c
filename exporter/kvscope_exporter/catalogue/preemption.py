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
        help="Discarded tokens that a resumed sequence need not compute again: the cache still "
        "held them, or a connector loaded them.",
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
        help="Discarded tokens that a resumed sequence has to compute again, by the mode and cause "
        "of the preemption.",
        notes=_UNATTRIBUTED,
        unit="tokens",
        group="preemption",
        lean_without=("mode", "cause"),
        labels=_BY_KIND,
        otel_name="kvscope.preemption.recomputed_tokens",
        events=("RequestPreempted", "RequestResumed"),
    ),
    Metric(
        name="kvscope_preemption_swapped_tokens_total",
        kind="counter",
        help="Discarded tokens that were copied back from the host when their sequence resumed, by "
        "the mode and cause of the preemption.",
        notes=_UNATTRIBUTED,
        unit="tokens",
        group="preemption",
        detail="full",
        labels=_BY_KIND,
        otel_name="kvscope.preemption.swapped_tokens",
        events=("RequestPreempted", "RequestResumed", "BlocksSwapped"),
    ),
    Metric(
        name="kvscope_preemption_stalled_seconds_total",
        kind="counter",
        help="Time that preempted sequences waited, added when they resume or end, by the mode and "
        "cause of the preemption.",
        notes=_UNATTRIBUTED,
        unit="seconds",
        group="preemption",
        lean_without=("mode", "cause"),
        labels=_BY_KIND,
        otel_name="kvscope.preemption.stalled",
        events=("RequestPreempted", "RequestResumed", "SequenceFinished"),
    ),
)
