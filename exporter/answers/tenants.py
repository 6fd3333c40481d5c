"""`GET /api/tenants`: requests, tokens and waiting times by tenant."""

import msgspec

from exporter.answers.question import Asked, Question
from exporter.fold.tenants import NOBODY, Tenant, Tenants

LISTED = 50

_NAMES = (
    "tenant is the first eight hex digits of the SHA-256 of what a request names as its `user`, "
    "which may be a person: `printf %s USER | sha256sum | cut -c1-8` prints yours; of an "
    "observed vLLM, of its `cache_salt` or session. null: requests without one."
)


class OneTenant(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant, since it got its counter; None: has not happened yet."""

    tenant: str | None
    requests: int
    running: int
    """Calls that have started but not ended, preempted ones included."""
    waiting: int
    """Calls that have not started yet."""
    finished: int
    failed: int
    prompt_tokens: int
    ended_prompt_tokens: int
    """The part that belongs to sequences that have ended."""
    computed_ratio: float | None
    """Share of the ended prompt tokens that were computed, not found in the cache."""
    output_tokens: int
    token_ratio: float | None
    """Share of the prompt and output tokens of all tenants."""
    preemptions: int
    scheduled: int
    """Requests that have started: the mean queue time is over these."""
    mean_queue_seconds: float | None
    answered: int
    """Requests with a first token: the mean time to it is over these."""
    mean_first_token_seconds: float | None
    max_error_tokens: int
    """Upper bound of its tokens before it got this counter."""


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


def _answer(asked: Asked) -> TenantsAnswer:
    fold = asked.folds[Tenants]
    tenants = sorted(fold.tenants.values(), key=lambda each: (-each.weight, each.name))
    tokens = sum(each.prompt_tokens + each.output_tokens for each in tenants)
    return TenantsAnswer(
        names=_NAMES,
        counted_tenants=len(tenants),
        tokens=tokens,
        uncounted_at_most_tokens=fold.least_weight,
        unattributed_requests=fold.unattributed,
        tenants=[_one(tenant, tokens) for tenant in tenants[:LISTED]],
    )


def _one(tenant: Tenant, tokens: int) -> OneTenant:
    return OneTenant(
        tenant=None if tenant.name == NOBODY else tenant.name,
        requests=tenant.requests,
        running=tenant.running,
        waiting=tenant.waiting,
        finished=tenant.finished,
        failed=tenant.failed,
        prompt_tokens=tenant.prompt_tokens,
        ended_prompt_tokens=tenant.ended_tokens,
        computed_ratio=_ratio(tenant.computed_tokens, tenant.ended_tokens),
        output_tokens=tenant.output_tokens,
        token_ratio=_ratio(tenant.prompt_tokens + tenant.output_tokens, tokens),
        preemptions=tenant.preemptions,
        scheduled=tenant.scheduled,
        mean_queue_seconds=_ratio(tenant.queued_ns / 1e9, tenant.scheduled),
        answered=tenant.answered,
        mean_first_token_seconds=_ratio(tenant.first_token_ns / 1e9, tenant.answered),
        max_error_tokens=tenant.error_tokens,
    )


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


TENANTS: Question[TenantsAnswer] = Question(
    name="tenants",
    summary="Demand by tenant (the hash of `user`), and how long each waits.",
    events=("RequestArrived", "RequestScheduled", "FirstToken", "RequestFinished"),
    folds=(Tenants,),
    read=_answer,
)
