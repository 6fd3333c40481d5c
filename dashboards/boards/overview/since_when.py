"""Overview: the curves that say since when."""

from typing import get_args

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, graph, heat, quantiles, timeline
from dashboards.kit.queries import (
    BY_ENGINE,
    SERVER,
    TARGET,
    buckets,
    every_part,
    known_servers,
    quantile,
    series,
    total,
    worst,
)
from dashboards.kit.tables import Column, rows
from dashboards.kit.time_parts import first_token_time
from kvscope_events.vocabulary import StartPhase

_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
_WAITS = {
    0: ("in time", limits.GREEN),
    1: ("over half of it", limits.ORANGE),
    2: ("past the promise", limits.RED),
}
_PHASES = get_args(StartPhase)
_STARTS = series("kvscope_start_phase_seconds")
_STATES = {
    0: ("silent", limits.RED),
    1: ("expected", limits.ORANGE),
    2: ("loading", limits.ORANGE),
    3: ("ready", limits.GREEN),
}


def _waits() -> str:
    oldest = worst(series("kvscope_requests_oldest_wait_seconds"), BY_ENGINE)
    return f"({oldest} > bool ${{ttft:text}}) + ({oldest} > bool ${{ttft:text}} / 2)"


def _states() -> str:
    """By server; an exporter without its server's state uses that of its engine."""
    silent = f"0 * (up == 0 and on ({TARGET}) {known_servers(every_part())})"
    told = " or ".join(
        f"{code:g} * ({series('kvscope_server_state', SERVER, state=state)} == 1)"
        for code, state in enumerate(("gone", "expected", "loading", "ready"))
    )
    return f"min by (instance) ({silent} or {told} or 2 + {series('kvscope_engine_ready')})"


def _start(phase: str) -> str:
    """By engine, of the worker where it takes longest."""
    return worst(series("kvscope_start_phase_seconds", phase=phase), BY_ENGINE)


def _weights_read() -> str:
    """By engine, of the worker that has read least."""
    read, files = (series(f"kvscope_start_weights_{part}_bytes") for part in ("read", "file"))
    return f"min by ({BY_ENGINE}) ({read} / {files})"


def _whole_start() -> str:
    """By engine, of the worker where it takes longest."""
    return worst(total(_STARTS, f"{BY_ENGINE}, worker"), BY_ENGINE)


def _usual_start() -> str:
    """By engine: the median over a week and the replicas of its model. One that has started stays
    at what it took, so a start under way hardly counts."""
    usual = f"quantile by (model_name) (0.5, quantile_over_time(0.5, {_whole_start()}[1w:2h]))"
    return f"0 * {_whole_start()} + on (model_name) group_left () {usual}"


def row() -> Row:
    return Row(
        300,
        "Since when?",
        [
            graph(
                302,
                "Active share of the KV pool",
                "Share of the usable blocks that sequences reference. Long at the top: add "
                "replicas, give the pool more memory, or lower --max-num-seqs. Short peaks are "
                "healthy.",
                RATIO,
                *outstanding(worst(series("kvscope_kv_active_ratio"), BY_ENGINE), rank="avg"),
                high=1,
                steps=limits.POOL_USAGE,
                span=8,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            quantiles(
                303,
                "Time to first token",
                "How long users wait before they see anything. A p99 far from the p50: a few "
                "requests pay for the others; look at waiting requests and preemptions at that "
                "moment. One engine far worse than all others: only that engine is in trouble; "
                "sort the table of engines by first token. promise: what is chosen above.",
                *quantile_lines(_FIRST_TOKEN, 0.5, 0.95),
                Q(worst(quantile(0.95, _FIRST_TOKEN, BY_ENGINE)), "p95, worst engine"),
                FIRST_TOKEN_OBJECTIVE,
                colours={"p50": "light-blue", "p95": "blue", "p95, worst engine": "purple"},
                coarse=True,
                span=8,
            ),
            heat(
                307,
                "Time to first token, every request",
                "What lies behind the quantiles: a cell for each bucket of the histogram, the "
                "more it stands out, the more requests. Two bands: two kinds of requests, or of "
                "engines; choose a model above. A quantile between two bands describes no "
                "request.",
                buckets(_FIRST_TOKEN),
                span=8,
            ),
            first_token_time(309),
            graph(
                304,
                "Requests",
                "Running and waiting now, swapped out or not. Waiting that does not drain: "
                "arrivals exceed what the engines can serve; add replicas or refuse earlier.",
                COUNT,
                Q(total(series("kvscope_requests", state="running")), "running"),
                Q(total(series("kvscope_requests", state=("waiting", "swapped"))), "waiting"),
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
                span=8,
            ),
            timeline(
                305,
                "Oldest wait, against the promise",
                "The request that has waited longest, by engine: longer than a first token may "
                "take, or than half of that; of many engines the ten where it was longest. Past "
                "the promise in one engine alone: take it out. For minutes without an end, though "
                "it makes steps: its queue does not move; look at its log, then restart it.",
                among(_waits(), rank="avg"),
                meanings=_WAITS,
                span=8,
                when_absent="No engine in this time range.",
            ),
            timeline(
                306,
                "State of the servers",
                "silent: does not answer Prometheus, or its engine is no longer heard. loading: "
                "takes no requests yet; if for longer than usual, its log shows what it waits "
                "for. Loading again unprompted: it crashed. Of many servers, the ten that were "
                "least ready.",
                among(_states(), "{{instance}}", by="instance", lowest=True, rank="avg"),
                meanings=_STATES,
                span=8,
                when_absent="No engine in this time range.",
            ),
            rows(
                308,
                "How far is the start?",
                "Time for each part of the last start, by engine, of its slowest worker; the last "
                "part that is there goes on while the engine loads. One that takes far longer than "
                "in the others hangs there. device: a rank of the group is missing. weights: a "
                "slow disk or network; read: the share of the files. warm_up: compiling, into a "
                "cache that was lost. Usually: the median of the model's starts in a week.",
                *(Q(_start(phase), phase) for phase in _PHASES),
                Q(_whole_start(), "all"),
                Q(_usual_start(), "usual"),
                Q(_weights_read(), "read"),
                columns={
                    "model_name": Column("Model"),
                    "instance": Column("Instance"),
                    "engine": Column("Engine", width=65),
                    "all": Column("Whole start", SECONDS, width=110),
                    "usual": Column("Usually", SECONDS, width=90),
                    **{phase: Column(phase, SECONDS, width=85) for phase in _PHASES},
                    "read": Column("read", RATIO, width=70),
                },
                height=6,
                worst_first=("Whole start",),
                when_absent="No vLLM or SGLang with kvscope's observer in it.",
            ),
        ],
    )
