"""Demand by tenant and by adapter: requests, tokens and waiting, in fixed memory.

A tenant is the `user` of a request; of an observed vLLM, the salt of its cache or its session. That
may be a person or a secret: producers send a digest, and what an older one sends is hashed here.
"""

import re

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
from kvscope_exporter.state.demand import Counters, Demand
from kvscope_exporter.state.shown import TopOwners

COUNTERS = 256
"""Tenants with a counter, and adapters: each error is at most a 256th of all tokens."""
HASH_DIGITS = 8
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
NOBODY = ""
"""The tenant of requests that do not name one."""


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

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
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
