"""Requests and steps: states, ends, latencies, the pace of the engine."""

from typing import get_args

from kvscope_events.vocabulary import FinishReason, RejectReason
from kvscope_exporter.catalogue.metric import ENGINE, Metric
from kvscope_exporter.state import buckets
from kvscope_exporter.state.time_parts import PARTS, PARTS_OF, QUEUED

_PARTS = """Counted when the first token comes, and when the request ends.
`wait_sequences`, `wait_blocks`, `wait_tokens`: in the queue, while a step admitted no more for
the limit on sequences, for missing blocks, for its token budget. `wait_transfer`: passed over, for
content that loads, a grammar, an adapter, or since the engine was paused. `wait_unexplained`: none
of these. `wait_step`: until the running step ended. `preempted`: between a preemption and the
resumption. `prefill_own`: the prompt's share of its steps, by tokens; `prefill_again` what was
computed before, `prefill_others` the rest of these steps, and what prompts added to a running step
that a request had to wait for. `decode`: steps that generate its tokens,
`decode_prefills` what prompts in these steps added, `slow` what steps took beyond the expected;
these three are estimates by a fit of steps' durations. `host`: between two steps. `unknown`: the
server does not report it.""".replace("\n", " ")

REQUESTS = (
    Metric(
        name="kvscope_requests",
        kind="gauge",
        help="Requests in the engine by state: running, waiting or swapped.",
        notes="A request waits while none of its sequences runs, also after a preemption, and is "
        "swapped instead while one of them has its KV on the host.",
        unit="requests",
        group="requests",
        labels={**ENGINE, "state": ("waiting", "running", "swapped")},
        otel_name="kvscope.requests",
        aliases=(
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "sglang:num_running_reqs",
            "sglang:num_queue_reqs",
        ),
        events=(
            "StepCompleted",
            "RequestArrived",
            "RequestScheduled",
            "RequestFinished",
        ),
    ),
    Metric(
        name="kvscope_sequences",
        kind="gauge",
        help="Sequences in the engine by state; a request with n > 1 has several.",
        notes="These are what the engine's limit of sequences counts. Those that wait with their "
        "KV on the host are swapped instead.",
        unit="sequences",
        group="requests",
        detail="full",
        labels={**ENGINE, "state": ("waiting", "running", "swapped")},
        otel_name="kvscope.sequences",
        events=(
            *("StepCompleted", "SequenceAdded", "SequenceFinished"),
            *("RequestPreempted", "RequestResumed"),
        ),
    ),
    Metric(
        name="kvscope_requests_oldest_wait_seconds",
        kind="gauge",
        help="Time that the longest-waiting request has waited; 0 when none waits.",
        notes="Absent after lost events until all waiting requests are known.",
        unit="seconds",
        group="requests",
        otel_name="kvscope.requests.oldest_wait",
        events=(
            *("RequestArrived", "RequestScheduled", "RequestPreempted", "RequestResumed"),
            *("RequestFinished", "StepCompleted"),
        ),
    ),
    Metric(
        name="kvscope_engine_ready",
        kind="gauge",
        help="Whether the model is loaded and the engine takes requests.",
        unit="",
        group="requests",
        otel_name="kvscope.engine.ready",
        events=("Hello",),
    ),
    Metric(
        name="kvscope_requests_finished_total",
        kind="counter",
        help="Finished requests, by the worst reason among their sequences.",
        notes="stop_string_or_abort: the scheduler of vLLM does not know which.",
        unit="requests",
        group="requests",
        labels={**ENGINE, "reason": get_args(FinishReason)},
        otel_name="kvscope.requests.finished",
        aliases=("vllm:request_success_total", "sglang:num_requests_total"),
        events=("RequestFinished",),
    ),
    Metric(
        name="kvscope_requests_rejected_total",
        kind="counter",
        help="Requests refused before they entered the queue, by reason.",
        unit="requests",
        group="requests",
        labels={**ENGINE, "reason": get_args(RejectReason)},
        otel_name="kvscope.requests.rejected",
        aliases=("vllm:admission_rejections_total",),
        events=("RequestRejected",),
    ),
    Metric(
        name="kvscope_top_tenant_tokens_total",
        kind="counter",
        help="Prompt and output tokens by tenant: one of the five that have most, or `other`.",
        notes="A tenant is eight hex digits of an HMAC, keyed with KVSCOPE_TENANT_SECRET, of a "
        "request's `user`; of an observed vLLM, of what KVSCOPE_OBSERVER_TENANT names, else of "
        "its `cache_salt` or session. A prompt counts when it arrives, output when "
        "its request ends. A series ends when its tenant leaves the five, and goes on from there "
        "if it comes back. /api/tenants has fifty.",
        unit="tokens",
        group="requests",
        detail="full",
        labels={**ENGINE, "tenant": None},
        otel_name="kvscope.top_tenant_tokens",
        events=("RequestArrived", "RequestFinished"),
    ),
    Metric(
        name="kvscope_time_to_first_token_seconds",
        kind="histogram",
        help="Time from a request's arrival to the first token of any of its sequences.",
        unit="seconds",
        group="requests",
        lean_buckets=(0.25, 0.5, 1, 2.5, 5, 10, 20, 40),
        buckets=buckets.FIRST_TOKEN_SECONDS,
        otel_name="kvscope.time_to_first_token",
        aliases=("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
        events=("FirstToken",),
    ),
    Metric(
        name="kvscope_inter_token_latency_seconds",
        kind="histogram",
        help="Time between consecutive tokens of a sequence; a preemption is one long sample.",
        notes="With speculative decoding a step may emit several tokens of a sequence, each of "
        "which counts with an equal part of the time since those before.",
        unit="seconds",
        group="requests",
        lean_buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 1),
        buckets=buckets.INTER_TOKEN_SECONDS,
        otel_name="kvscope.inter_token_latency",
        aliases=("vllm:inter_token_latency_seconds", "sglang:inter_token_latency_seconds"),
        events=("StepCompleted",),
    ),
    Metric(
        name="kvscope_request_duration_seconds",
        kind="histogram",
        help="Time from a request's arrival to its end, whatever the reason.",
        unit="seconds",
        group="requests",
        lean_buckets=(),
        buckets=buckets.REQUEST_SECONDS,
        otel_name="kvscope.request.duration",
        aliases=("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
        events=("RequestFinished",),
    ),
    Metric(
        name="kvscope_request_queue_seconds",
        kind="histogram",
        help="Time from a request's arrival until it first runs, observed when it runs.",
        unit="seconds",
        group="requests",
        lean_buckets=(1, 10),
        buckets=buckets.QUEUE_SECONDS,
        otel_name="kvscope.request.queue",
        aliases=("vllm:request_queue_time_seconds", "sglang:queue_time_seconds"),
        events=("RequestScheduled",),
    ),
    Metric(
        name="kvscope_request_abandoned_seconds",
        kind="histogram",
        help="How long clients waited before they gave up without a first token.",
        unit="seconds",
        group="requests",
        lean_buckets=(2.5, 10, 60),
        buckets=buckets.ABANDONED_SECONDS,
        otel_name="kvscope.request.abandoned",
        events=("RequestFinished",),
    ),
    Metric(
        name="kvscope_request_seconds_total",
        kind="counter",
        help="Time of requests from arrival to end, by what it was spent on.",
        notes=_PARTS,
        unit="seconds",
        group="requests",
        lean_values={"phase": ("first_token",)},
        labels={**ENGINE, "phase": tuple(PARTS_OF), "part": PARTS},
        otel_name="kvscope.request.time",
        events=("StepCompleted", "RequestScheduled", "FirstToken", "RequestFinished"),
    ),
    Metric(
        name="kvscope_queue_wait_seconds_total",
        kind="counter",
        help="Waiting time by what held requests; its rate is the mean number of waiting requests.",
        notes="Preempted requests that wait are among them. The parts are those of "
        "kvscope_request_seconds_total.",
        unit="seconds",
        group="requests",
        lean_values={"part": ("wait_unexplained",)},
        labels={**ENGINE, "part": QUEUED},
        otel_name="kvscope.queue.wait_time",
        aliases=("vllm:num_requests_waiting_by_reason",),
        events=("StepCompleted", "RequestArrived"),
    ),
    Metric(
        name="kvscope_step_duration_seconds",
        kind="histogram",
        help="Duration of an engine step.",
        unit="seconds",
        group="requests",
        detail="full",
        buckets=buckets.STEP_SECONDS,
        otel_name="kvscope.step.duration",
        events=("StepCompleted",),
    ),
    Metric(
        name="kvscope_step_tokens_total",
        kind="counter",
        help="Tokens that steps computed, recomputed ones included, by phase.",
        unit="tokens",
        group="requests",
        labels={**ENGINE, "phase": ("prefill", "decode")},
        otel_name="kvscope.step.tokens",
        aliases=("sglang:realtime_tokens_total",),
        events=("StepCompleted",),
    ),
    Metric(
        name="kvscope_last_step_age_seconds",
        kind="gauge",
        help="Time since the last engine step; it grows while the engine hangs or idles.",
        notes="Before the first step, since the pool's creation.",
        unit="seconds",
        group="requests",
        otel_name="kvscope.last_step.age",
        events=("StepCompleted",),
    ),
)
