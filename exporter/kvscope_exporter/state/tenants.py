"""Demand by tenant and by adapter: requests, tokens and waiting, in fixed memory.

A tenant is the `user` of a request; of an observed vLLM, the salt of its cache or its session. That
may be a person or a secret: producers send a digest, and what an older one sends is hashed here.
Counters are few and reassigned by space-saving (Metwally, Agrawal, El Abbadi 2005): a tenant
without a counter takes over the lightest one, with its weight as the error.
"""

import re
from dataclasses import dataclass

from kvscope_events.events import (
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    SequenceFinished,
)
from kvscope_events.tenants import tenant_digest
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.shown import TopOwners

COUNTERS = 256
"""Tenants with a counter, and adapters: each error is at most a 256th of all tokens."""
HASH_DIGITS = 8
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
NOBODY = ""
"""The tenant of requests that do not name one."""


@dataclass(slots=True)
class Demand:
    """Demand and service of one tenant or adapter since it got this counter."""

    name: str
    """The first digits of a tenant's hash, or NOBODY; an adapter's own name."""
    error_tokens: int = 0
    """Upper bound of its tokens before that."""
    requests: int = 0
    """Requests that have arrived."""
    running: int = 0
    waiting: int = 0
    """Requests that have neither run yet nor ended."""
    finished: int = 0
    failed: int = 0
    """Finished requests that ended in an error."""
    prompt_tokens: int = 0
    ended_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens of ended sequences, and those of them that were computed, not found: a prompt
    counts for each of its samples."""
    output_tokens: int = 0
    preemptions: int = 0
    scheduled: int = 0
    queued_ns: int = 0
    """Queue time of all scheduled requests."""
    answered: int = 0
    first_token_ns: int = 0
    """Time to first token of all answered requests."""

    @property
    def label(self) -> str:
        return self.name

    @property
    def credited_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def weight(self) -> int:
        return self.error_tokens + self.credited_tokens


class Counters:
    """The heaviest of all names."""

    def __init__(self, most: int) -> None:
        self.by_name: dict[str, Demand] = {}
        self.most = most

    @property
    def least_weight(self) -> int:
        """Upper bound of the tokens of a name without a counter; O(counters)."""
        if len(self.by_name) < self.most:
            return 0
        return min(demand.weight for demand in self.by_name.values())

    def has(self, demand: Demand) -> bool:
        """Whether it still has its counter."""
        return self.by_name.get(demand.name) is demand

    def take(self, name: str) -> tuple[Demand, Demand | None]:
        """The counter of a name, and whose it was if it had to be taken from another."""
        demand, former = self.by_name.get(name), None
        if demand is None:
            demand = Demand(name)
            if len(self.by_name) == self.most:
                former = min(self.by_name.values(), key=lambda each: each.weight)
                del self.by_name[former.name]
                demand.error_tokens = former.weight
            self.by_name[name] = demand
        return demand, former


class Tenants(CallFold):
    """Prompts count when a request arrives, everything else when it happens.

    The outcome of requests that arrived before a gap belongs to no tenant: they count as
    `unattributed` once they end.
    """

    name = "tenants"

    def __init__(self, counters: int = COUNTERS) -> None:
        super().__init__()
        self.tenants = Counters(counters)
        self.adapters = Counters(counters)
        """Empty while no request names one."""
        self.shown = TopOwners()
        """Tokens of the tenants that have most."""
        self.unattributed = 0

    def on_lost(self) -> None:
        for demand in (*self.tenants.by_name.values(), *self.adapters.by_name.values()):
            demand.running = demand.waiting = 0

    def check(self) -> None:
        """Assert that the unended requests are those that run or wait; O(counters * pending)."""
        for counters in (self.tenants, self.adapters):
            assert len(counters.by_name) <= counters.most
            for demand in counters.by_name.values():
                under_way = [r for r in self.calls.requests.values() if demand in r.owners]
                running = sum(request.is_admitted for request in under_way)
                assert (demand.running, demand.waiting) == (running, len(under_way) - running)

    def on_arrived(self, request: Request) -> None:
        event = request.arrived
        assert event is not None
        tenant, former = self.tenants.take(name_of(event))
        if former is not None:
            self.shown.remove(former)
        demands = (tenant, self.adapters.take(event.adapter)[0]) if event.adapter else (tenant,)
        for demand in demands:
            demand.requests += 1
            demand.waiting += 1
            demand.prompt_tokens += event.prompt_tokens
        self._credit(tenant, event.prompt_tokens)
        request.owners = demands

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        for demand in _owners(request):
            demand.waiting -= 1
            demand.running += 1
            demand.scheduled += 1
            demand.queued_ns += event.queue_ns

    def on_first_token(self, event: FirstToken, request: Request | None) -> None:
        for demand in _owners(request):
            demand.answered += 1
            demand.first_token_ns += event.elapsed_ns

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        for demand in sequence.request.owners:
            demand.preemptions += 1

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        if event.computed_tokens is None:
            return
        for demand in _owners(self.calls.requests.get(event.request)):
            demand.ended_tokens += event.prompt_tokens
            demand.computed_tokens += event.computed_tokens

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        if request is None or not request.owners:
            self.unattributed += 1
            return
        for demand in request.owners:
            demand.finished += 1
            demand.failed += event.reason == "error"
            demand.output_tokens += event.output_tokens
            demand.running -= request.is_admitted
            demand.waiting -= not request.is_admitted
        self._credit(request.owners[0], event.output_tokens)
        request.owners = ()

    def _credit(self, tenant: Demand, tokens: int) -> None:
        if tenant.name != NOBODY and self.tenants.has(tenant):
            self.shown.credit(tenant, tokens)
        else:
            self.shown.other += tokens


def _owners(request: Request | None) -> tuple[Demand, ...]:
    return () if request is None else request.owners


def name_of(event: RequestArrived) -> str:
    """The name of its tenant here, or NOBODY."""
    if event.tenant_digest and _DIGEST.fullmatch(event.tenant):
        return event.tenant[:HASH_DIGITS]
    return short_name(event.tenant)


def short_name(user: str) -> str:
    """The name that replaces a user's."""
    return tenant_digest(user)[:HASH_DIGITS] if user else NOBODY
