"""The results of a run: counts while it goes on, the report at its end."""

import time
from collections import Counter
from dataclasses import asdict, dataclass

from kvscope.load.client import Exchange
from kvscope.load.counters import HitRate
from kvscope.load.distribution import Distribution, Summary

_NO_GAP = 0.02
"""Share of the mean gap below which a median gap only reflects how chunks were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run; a copy, safe to keep."""

    elapsed_seconds: float
    share_done: float | None
    """0 to 1; None for a run without end."""
    in_flight: int
    ok: int
    failed: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All measurements. None: not exposed by the server, or nothing to measure; never 0."""

    scenario: str
    model: str
    url: str
    seed: int
    elapsed_seconds: float
    ok: int
    failed: dict[str, int]
    """Failed requests by kind; see RequestFailedError."""
    first_failures: dict[str, str]
    """The first detail of each kind."""
    retried: int
    """Waits after a 429; not failures."""
    cancelled: int
    """Requests in flight when the run was stopped."""
    shed: int
    """Arrivals dropped because too many requests were in flight (open loop)."""
    skipped: int
    """Requests of a trace longer than the context, not sent."""
    truncated: int
    """Requests of a trace cut to the context."""
    max_late_seconds: float | None
    """Trace: longest wait of a request for room, after its time of arrival."""
    prompt_tokens: int | None
    """Tokens, as the server's usage reports them."""
    output_tokens: int
    output_tokens_counted: bool
    """False: some replies had no usage from the server; for them a chunk counts as one token."""
    ttft: Summary | None
    """First chunk with output after the request was sent."""
    tpot: Summary | None
    """Per request: (end-to-end - TTFT) / (output tokens - 1)."""
    itl: Summary | None
    """Between chunks with output; a chunk may hold several tokens."""
    e2e: Summary | None
    hit_rate_usage: HitRate | None
    """Prefix hits according to the replies' `prompt_tokens_details.cached_tokens`."""
    hit_rate_metrics: HitRate | None
    """Prefix hits according to the server's counters, which include other clients' requests."""
    preemptions: int | None
    server_lost: bool
    """Whether the server refused connections until the run ended, or the run was ended for that."""
    interrupted: bool
    """Whether the run was stopped before its end."""
    notes: tuple[str, ...]
    """Assumptions, and values that could not be read."""

    @property
    def chunks_arrived_together(self) -> bool:
        """Whether half of the gaps between chunks are zero: several chunks were read at once."""
        return self.itl is not None and self.itl.p50 < _NO_GAP * self.itl.mean

    @property
    def num_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def failed_altogether(self) -> bool:
        """Whether no request succeeded, or the server went away."""
        return self.server_lost or (self.ok == 0 and not self.interrupted)

    def per_second(self, amount: int | None) -> float | None:
        if amount is None or self.elapsed_seconds <= 0:
            return None
        return amount / self.elapsed_seconds

    def to_dict(self) -> dict[str, object]:
        """The fields and the rates derived from them, for JSON."""
        fields: dict[str, object] = asdict(self)
        for name in ("hit_rate_usage", "hit_rate_metrics"):
            hit_rate: HitRate | None = getattr(self, name)
            if hit_rate is not None:
                fields[name] = asdict(hit_rate) | {"ratio": hit_rate.ratio}
        return fields | {
            "requests_per_second": self.per_second(self.ok),
            "prompt_tokens_per_second": self.per_second(self.prompt_tokens),
            "output_tokens_per_second": self.per_second(self.output_tokens),
        }


class Tally:
    """Counts a run as it happens, in bounded memory. Belongs to one event loop."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.finished: float | None = None
        self.ok = 0
        self.failed: Counter[str] = Counter()
        self.first_failures: dict[str, str] = {}
        self.retried = 0
        self.cancelled = 0
        self.shed = 0
        self.skipped = 0
        self.truncated = 0
        self.max_late_seconds: float | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens = 0
        self.output_tokens_counted = True
        self.ttft = Distribution()
        self.tpot = Distribution()
        self.itl = Distribution()
        self.e2e = Distribution()
        self._cached_of: int | None = None
        self._cached = 0

    @property
    def elapsed_seconds(self) -> float:
        end = time.perf_counter() if self.finished is None else self.finished
        return end - self.started

    def succeeded(self, exchange: Exchange) -> None:
        self.ok += 1
        usage = exchange.usage
        output_tokens = usage.output_tokens
        if output_tokens is None:
            output_tokens = exchange.num_chunks
            self.output_tokens_counted = False
        self.output_tokens += output_tokens
        if usage.prompt_tokens is not None:
            self.prompt_tokens = (self.prompt_tokens or 0) + usage.prompt_tokens
        if usage.cached_tokens is not None and usage.prompt_tokens is not None:
            self._cached_of = (self._cached_of or 0) + usage.prompt_tokens
            self._cached += usage.cached_tokens
        self.e2e.observe(exchange.e2e)
        for seconds in exchange.inter_token:
            self.itl.observe(seconds)
        if exchange.ttft is not None:
            self.ttft.observe(exchange.ttft)
            if output_tokens > 1:
                self.tpot.observe((exchange.e2e - exchange.ttft) / (output_tokens - 1))

    def has_failed(self, kind: str, detail: str) -> None:
        self.failed[kind] += 1
        self.first_failures.setdefault(kind, detail)

    def was_late(self, seconds: float) -> None:
        self.max_late_seconds = max(self.max_late_seconds or 0.0, seconds)

    @property
    def hit_rate(self) -> HitRate | None:
        if self._cached_of is None:
            return None
        return HitRate(queried_tokens=self._cached_of, hit_tokens=self._cached)
