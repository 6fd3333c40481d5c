"""`GET /api/tenants`: requests, tokens and waiting times by tenant and by adapter."""

from typing import Any

import msgspec

from kvscope_exporter.answers.question import QueryContext, Question
from kvscope_exporter.state.demand import Counters, Demand
from kvscope_exporter.state.tenants import NOBODY, Tenants

LISTED = 50

_NAMES = (
    "tenant is eight hex digits of an HMAC of what a request names as its `user`, which may be a "
    "person; of an observed vLLM, of what KVSCOPE_OBSERVER_TENANT names, else of its `cache_salt` "
    "or session. Its key is the server's KVSCOPE_TENANT_SECRET; without one it is random, and "
    "changes at each start. null: requests without one."
)


class OneDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Demand under one name, since it got its counter; None: has not happened yet."""

    requests: int
    running: int
    """Calls that have started but not ended, preempted ones included."""
    waiting: int
    """Calls that have not started yet."""
    finished: int
    failed: int
    prompt_tokens: int
    ended_prompt_tokens: int
    """Those of the sequences that have ended: a prompt counts for each of its samples."""
    computed_ratio: float | None
    """Share of the ended prompt tokens that were computed, not found in the cache."""
    output_tokens: int
    token_ratio: float | None
    """Share of the prompt and output tokens of all of them."""
    preemptions: int
    scheduled: int
    """Requests that have started: the mean queue time is over these."""
    mean_queue_seconds: float | None
    answered: int
    """Requests with a first token: the mean time to it is over these."""
    mean_first_token_seconds: float | None
    max_error_tokens: int
    """Upper bound of its tokens before it got this counter."""


class OneTenant(OneDemand, frozen=True, kw_only=True):
    """One tenant; None: requests without one."""

    tenant: str | None


class OneAdapter(OneDemand, frozen=True, kw_only=True):
    """One LoRA adapter; requests to the model itself are not among them."""

    adapter: str


class TenantsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Demand since the exporter began to watch, without refused requests, which never arrive."""

    names: str
    counted_tenants: int
    tokens: int
    """Prompt and output tokens of the tenants that are counted now."""
    uncounted_at_most_tokens: int
    """Upper bound for a tenant without a counter."""
    unattributed_requests: int
    """Requests that ended but whose arrival was in a lost part of the stream."""
    tenants: list[OneTenant]
    """At most 50, those with most tokens first."""
    adapters: list[OneAdapter] = []
    """At most 50 of an observed vLLM, in the same order; shares are of the tokens of adapters."""


def _answer(asked: QueryContext) -> TenantsAnswer:
    fold = asked.folds[Tenants]
    tenants, tokens = _heaviest(fold.tenants)
    adapters, adapters_tokens = _heaviest(fold.adapters)
    return TenantsAnswer(
        names=_NAMES,
        counted_tenants=len(tenants),
        tokens=tokens,
        uncounted_at_most_tokens=fold.tenants.least_weight,
        unattributed_requests=fold.unattributed,
        tenants=[
            OneTenant(tenant=None if one.name == NOBODY else one.name, **_figures(one, tokens))
            for one in tenants[:LISTED]
        ],
        adapters=[
            OneAdapter(adapter=one.name, **_figures(one, adapters_tokens))
            for one in adapters[:LISTED]
        ],
    )


def _heaviest(counters: Counters) -> tuple[list[Demand], int]:
    """Those with most tokens first, and the tokens of them all."""
    demands = sorted(counters.by_name.values(), key=lambda each: (-each.weight, each.name))
    return demands, sum(each.credited_tokens for each in demands)


def _figures(demand: Demand, tokens: int) -> dict[str, Any]:
    return {
        "requests": demand.requests,
        "running": demand.running,
        "waiting": demand.waiting,
        "finished": demand.finished,
        "failed": demand.failed,
        "prompt_tokens": demand.prompt_tokens,
        "ended_prompt_tokens": demand.ended_tokens,
        "computed_ratio": _ratio(demand.computed_tokens, demand.ended_tokens),
        "output_tokens": demand.output_tokens,
        "token_ratio": _ratio(demand.credited_tokens, tokens),
        "preemptions": demand.preemptions,
        "scheduled": demand.scheduled,
        "mean_queue_seconds": _ratio(demand.queued_ns / 1e9, demand.scheduled),
        "answered": demand.answered,
        "mean_first_token_seconds": _ratio(demand.first_token_ns / 1e9, demand.answered),
        "max_error_tokens": demand.error_tokens,
    }


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


TENANTS: Question[TenantsAnswer] = Question(
    name="tenants",
    summary="Demand by tenant (the hash of `user`) and by LoRA adapter, and how long each waits.",
    events=("RequestArrived", "RequestScheduled", "FirstToken", "RequestFinished"),
    folds=(Tenants,),
    read=_answer,
)
