"""The results of a run: counts while it goes on, the report at its end."""

import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from kvscope.load.client import Exchange
from kvscope_events.printable import quoted
from kvscope_exporter import words


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
class Latency:
    """Seconds of as many requests."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency | None":
        """Quantiles by nearest rank; None if nothing was measured."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        p50, p90, p99 = (ordered[ceil(q * len(ordered)) - 1] for q in (0.5, 0.9, 0.99))
        mean = sum(ordered) / len(ordered)
        return cls(count=len(ordered), mean=mean, p50=p50, p90=p90, p99=p99, max=ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a run. None: not reported by the server, or nothing to measure; never 0."""

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
    cached_tokens: int | None
    """Prompt tokens from the prefix cache, by the replies' `prompt_tokens_details`."""
    cached_of_tokens: int | None
    """Prompt tokens of the replies that say so."""
    first_token: Latency | None
    """Until the first chunk with output, after the request was sent."""
    duration: Latency | None
    server_lost: bool
    """Whether the server refused connections until the run ended, or the run was ended for that."""
    interrupted: bool
    """Whether the run was stopped before its end."""
    notes: tuple[str, ...]
    """Assumptions, and values that could not be read."""

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
        return asdict(self) | {
            "requests_per_second": self.per_second(self.ok),
            "output_tokens_per_second": self.per_second(self.output_tokens),
        }

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield f"{self.scenario} on {quoted(self.model)}, {words.seconds(self.elapsed_seconds)}"
        failed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.failed.items()))
        failures = f"{self.num_failed:,}" + (f" ({failed})" if failed else "")
        yield f"requests: {self.ok:,} successful, {failures} failed"
        only_if_any = (
            ("retried after 429", self.retried),
            ("cancelled in flight", self.cancelled),
            ("dropped on arrival", self.shed),
            ("skipped, longer than the context", self.skipped),
            ("cut to the context", self.truncated),
        )
        yield from (f"{what}: {count:,}" for what, count in only_if_any if count)
        if self.max_late_seconds is not None:
            yield f"latest start behind the trace: {words.seconds(self.max_late_seconds)}"
        for what, amount in (("requests", self.ok), ("output tokens", self.output_tokens)):
            yield f"{what} per second: {words.short(self.per_second(amount))}"
        if self.cached_tokens is not None and self.cached_of_tokens:
            share = words.share(self.cached_tokens / self.cached_of_tokens)
            yield f"prompt tokens from the prefix cache: {share}"
        for what, latency in (("first token", self.first_token), ("duration", self.duration)):
            if latency is not None:
                p50, p99 = words.seconds(latency.p50), words.seconds(latency.p99)
                yield f"{what}: p50 {p50}, p99 {p99}, at most {words.seconds(latency.max)}"
        for kind, detail in self.first_failures.items():
            yield f"first {kind}: {quoted(detail)}"
        yield from (f"note: {quoted(note)}" for note in self.notes)


class Tally:
    """Counts a run as it happens, in 16 bytes for each request. Belongs to one event loop."""

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
        self.first_token_seconds = array("d")
        self.duration_seconds = array("d")
        self.cached_tokens: int | None = None
        self.cached_of_tokens: int | None = None

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
            self.cached_of_tokens = (self.cached_of_tokens or 0) + usage.prompt_tokens
            self.cached_tokens = (self.cached_tokens or 0) + usage.cached_tokens
        self.duration_seconds.append(exchange.e2e)
        if exchange.ttft is not None:
            self.first_token_seconds.append(exchange.ttft)

    def has_failed(self, kind: str, detail: str) -> None:
        self.failed[kind] += 1
        self.first_failures.setdefault(kind, detail)

    def was_late(self, seconds: float) -> None:
        self.max_late_seconds = max(self.max_late_seconds or 0.0, seconds)
