"""Demand by tenant: requests, tokens and waiting, in fixed memory.

A tenant is the `user` of a request; of an observed vLLM, the salt of its cache or its session. That
may be a person or a secret, so a name is hashed before it is kept.
Counters are few and reassigned by space-saving (Metwally, Agrawal, El Abbadi 2005): a tenant
without a counter takes over the lightest one, with its weight as the error.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from exporter.fold.fold import Fold
from kvscope_events.events import (
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    SequenceFinished,
)

COUNTERS = 256
"""Tenants with a counter: each error is at most a 256th of all tokens."""
HASH_DIGITS = 8
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
NOBODY = ""
"""The tenant of requests that do not name one."""


@dataclass(slots=True)
class Tenant:
    """Demand and service of one tenant since it got this counter."""

    name: str
    """First digits of the hash of its name, or NOBODY."""
    error_tokens: int = 0
    """Upper bound of its tokens before that."""
    requests: int = 0
    """Requests that have arrived."""
    running: int = 0
    waiting: int = 0
    """Requests that have neither run yet nor ended."""
    finished: int = 0
    failed: int = 0
    """Finished sequences that ended in an error."""
    prompt_tokens: int = 0
    ended_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens of ended sequences, and those of them that were computed, not found."""
    output_tokens: int = 0
    preemptions: int = 0
    scheduled: int = 0
    queued_ns: int = 0
    """Queue time of all scheduled requests."""
    answered: int = 0
    first_token_ns: int = 0
    """Time to first token of all answered requests."""

    @property
    def weight(self) -> int:
        return self.error_tokens + self.prompt_tokens + self.output_tokens


class Tenants(Fold):
    """Prompts count when a request arrives, everything else when it happens.

    The outcome of requests that arrived before a gap belongs to no tenant: they count as
    `unattributed` once they end.
    """

    name = "tenants"

    def __init__(self, counters: int = COUNTERS) -> None:
        super().__init__(
            {
                RequestArrived: self._arrived,
                RequestScheduled: self._scheduled,
                FirstToken: self._first_token,
                RequestPreempted: self._preempted,
                SequenceFinished: self._sequence_finished,
                RequestFinished: self._finished,
            }
        )
        self.tenants: dict[str, Tenant] = {}
        self.unattributed = 0
        self._counters = counters
        self._of: dict[int, Tenant] = {}  # request -> its tenant
        self._started: set[int] = set()  # requests that have run

    @property
    def num_pending(self) -> int:
        return len(self._of)

    @property
    def least_weight(self) -> int:
        """Upper bound of the tokens of a tenant without a counter; O(counters)."""
        if len(self.tenants) < self._counters:
            return 0
        return min(tenant.weight for tenant in self.tenants.values())

    def on_gap(self) -> None:
        self._of.clear()
        self._started.clear()
        for tenant in self.tenants.values():
            tenant.running = tenant.waiting = 0

    def check(self) -> None:
        """Assert that the unended requests are those that run or wait; O(counters + pending)."""
        assert len(self.tenants) <= self._counters
        for tenant in self.tenants.values():
            under_way = [request for request, whose in self._of.items() if whose is tenant]
            running = sum(request in self._started for request in under_way)
            assert (tenant.running, tenant.waiting) == (running, len(under_way) - running)

    def _arrived(self, event: RequestArrived) -> None:
        hashed = event.tenant_digest and _DIGEST.fullmatch(event.tenant)
        tenant = self._tenant(event.tenant[:HASH_DIGITS] if hashed else short_name(event.tenant))
        tenant.requests += 1
        tenant.waiting += 1
        tenant.prompt_tokens += event.prompt_tokens
        self._of[event.request] = tenant

    def _scheduled(self, event: RequestScheduled) -> None:
        tenant = self._of.get(event.request)
        if tenant is None:
            return
        self._started.add(event.request)
        tenant.waiting -= 1
        tenant.running += 1
        tenant.scheduled += 1
        tenant.queued_ns += event.queue_ns

    def _first_token(self, event: FirstToken) -> None:
        tenant = self._of.get(event.request)
        if tenant is not None:
            tenant.answered += 1
            tenant.first_token_ns += event.elapsed_ns

    def _preempted(self, event: RequestPreempted) -> None:
        tenant = self._of.get(event.request)
        if tenant is not None:
            tenant.preemptions += 1

    def _sequence_finished(self, event: SequenceFinished) -> None:
        tenant = self._of.get(event.request)
        if tenant is not None and event.computed_tokens is not None:
            tenant.ended_tokens += event.prompt_tokens
            tenant.computed_tokens += event.computed_tokens

    def _finished(self, event: RequestFinished) -> None:
        tenant = self._of.pop(event.request, None)
        if tenant is None:
            self.unattributed += 1
            return
        tenant.finished += 1
        tenant.failed += event.reason == "error"
        tenant.output_tokens += event.output_tokens
        if event.request in self._started:
            self._started.discard(event.request)
            tenant.running -= 1
        else:
            tenant.waiting -= 1

    def _tenant(self, name: str) -> Tenant:
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = Tenant(name)
            if len(self.tenants) == self._counters:
                lightest = min(self.tenants.values(), key=lambda each: each.weight)
                del self.tenants[lightest.name]
                tenant.error_tokens = lightest.weight
            self.tenants[name] = tenant
        return tenant


def short_name(user: str) -> str:
    """The name that replaces a user's: `printf %s USER | sha256sum | cut -c1-8`."""
    return sha256(user.encode()).hexdigest()[:HASH_DIGITS] if user else NOBODY
