"""Families of requests, their latencies, steps and answers, and OpenTelemetry's own for these."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.catalogue.front_end import FRONT_END_PLACES
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import (
    FrontEnd,
    GenAi,
    HelloTracker,
    Latency,
    Requests,
    Steps,
    Tenants,
    TimeLedger,
)
from kvscope_exporter.state.time_parts import PARTS, PARTS_OF, QUEUED


def collect_gen_ai(families: Families, gen_ai: GenAi, _engine: Hello) -> Iterator[Family]:
    yield families.histograms("gen_ai_server_request_duration_seconds", gen_ai.duration)
    yield families.histograms("gen_ai_server_time_to_first_token_seconds", gen_ai.first_token)
    yield families.histograms(
        "gen_ai_server_time_per_output_token_seconds", gen_ai.time_per_output_token
    )


def collect_ready(families: Families, _fold: HelloTracker, engine: Hello) -> Iterator[Family]:
    yield families.single("kvscope_engine_ready", engine.ready)


def collect_requests(families: Families, requests: Requests, engine: Hello) -> Iterator[Family]:
    if requests.known:
        can_swap = "BlocksSwapped" in engine.tells
        yield families.column(
            "kvscope_requests",
            _by_state(requests.waiting, requests.running, requests.swapped, can_swap=can_swap),
        )
        yield families.column(
            "kvscope_sequences",
            _by_state(
                requests.sequences_waiting,
                requests.sequences_running,
                requests.sequences_swapped,
                can_swap=can_swap,
            ),
        )
    if requests.waiting_known:
        since_ns = requests.oldest_since_ns
        waited = 0.0 if since_ns is None else families.age(since_ns)
        yield families.single("kvscope_requests_oldest_wait_seconds", waited)
    yield families.column("kvscope_requests_finished_total", requests.finished)
    yield families.column("kvscope_requests_rejected_total", requests.rejected)


def _by_state(waiting: int, running: int, swapped: int, *, can_swap: bool) -> dict[str, int]:
    """States that can be summed: swapped-out requests wait, and are shown separately."""
    if not can_swap:
        return {"waiting": waiting, "running": running}
    return {"waiting": waiting - swapped, "running": running, "swapped": swapped}


def collect_tenants(families: Families, tenants: Tenants, _engine: Hello) -> Iterator[Family]:
    shown = tenants.shown
    yield families.column("kvscope_top_tenant_tokens_total", {**shown.tokens, "other": shown.other})


def collect_latency(families: Families, latency: Latency, _engine: Hello) -> Iterator[Family]:
    yield families.histogram("kvscope_time_to_first_token_seconds", latency.first_token)
    yield families.histogram("kvscope_inter_token_latency_seconds", latency.inter_token)
    yield families.histogram("kvscope_request_duration_seconds", latency.duration)
    yield families.histogram("kvscope_request_queue_seconds", latency.queue)
    yield families.histogram("kvscope_request_abandoned_seconds", latency.abandoned)


def collect_time(families: Families, time: TimeLedger, _engine: Hello) -> Iterator[Family]:
    phases = {"first_token": time.first_token, "rest": time.rest}
    yield families.table(
        "kvscope_request_seconds_total",
        {
            (phase, part): sums[PARTS.index(part)] / 1e9
            for phase, sums in phases.items()
            for part in PARTS_OF[phase]
        },
    )
    yield families.column(
        "kvscope_queue_wait_seconds_total",
        {part: time.standing[PARTS.index(part)] / 1e9 for part in QUEUED},
    )


def collect_steps(families: Families, steps: Steps, _engine: Hello) -> Iterator[Family]:
    yield families.histogram("kvscope_step_duration_seconds", steps.duration)
    yield families.column(
        "kvscope_step_tokens_total",
        {"prefill": steps.prefill_tokens, "decode": steps.decode_tokens},
    )
    if steps.last_step_ns is not None:
        yield families.single("kvscope_last_step_age_seconds", families.age(steps.last_step_ns))


def collect_front_end(families: Families, fold: FrontEnd, _process: Hello) -> Iterator[Family]:
    yield families.table("kvscope_front_end_answers_total", fold.answers)
    yield families.histogram("kvscope_front_end_first_part_seconds", fold.first_part)
    yield families.summaries(
        "kvscope_front_end_seconds", {(place,): known for place, known in fold.beside.items()}
    )
    yield families.summaries(
        "kvscope_front_end_tokenizer_seconds",
        {(part,): known for part, known in fold.tokenizer.items()},
    )
    now = fold.now
    if now is not None:
        yield families.column(
            "kvscope_front_end_requests",
            {place: getattr(now, place) for place in FRONT_END_PLACES},
        )
        if now.tokenizer_queue is not None:
            yield families.single("kvscope_front_end_tokenizer_waiting", now.tokenizer_queue)
