"""The load to generate: one frozen specification, checked with its URLs when it is built."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import httpx

from kvscope.load.tokens import BlockTokens
from kvscope.traces import Dialect, Trace, read_trace

_MAX_LENGTH = 2048
_MAX_PORT = 65535


def check_url(name: str, url: str) -> None:
    """Raises ValueError, which begins with `name`."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{name} must begin with http:// or https://, got {url[:80]!r}")
    if len(url) > _MAX_LENGTH:
        raise ValueError(f"{name} has {len(url)} characters, more than {_MAX_LENGTH}")
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode()
        host.encode("idna")  # like the resolver: no empty label, and none over 63 characters
    except (httpx.InvalidURL, ValueError) as error:  # ValueError: from codecs and addresses
        raise ValueError(f"{name} {url!r}: {error}") from None
    if not host:
        raise ValueError(f"{name} {url!r}: it names no host")
    if parts.port is not None and not 0 < parts.port <= _MAX_PORT:
        raise ValueError(f"{name} {url!r}: port {parts.port} is not between 1 and {_MAX_PORT}")


MAX_VOCAB_SIZE = 1 << 32
"""Token ids are drawn from 32 bits each."""
_HEADER_VALUE = re.compile(r"[!-~]+")


class Scenario(StrEnum):
    """Kinds of requests and of their arrival."""

    CHAT = "chat"
    RAG = "rag"
    AGENTS = "agents"
    BURSTS = "bursts"
    MIX = "mix"
    TRACE = "trace"

    @property
    def sends_text(self) -> bool:
        """Whether prompts are text, whose length in tokens depends on the server's tokenizer."""
        return self not in (Scenario.RAG, Scenario.TRACE)


class SpecError(ValueError):
    """A field of the specification with a value that cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """A run of the generator. Without duration and number it continues until it is stopped."""

    url: str
    """Base URL of an OpenAI-compatible server, with or without `/v1`."""
    scenario: Scenario
    trace_file: Path | None = None
    """Trace to replay; for `trace` only."""
    trace_dialect: Dialect | None = None
    """None: as its rows show it."""
    trace_block_size: int | None = None
    """Tokens behind one id; None: as its rows show it."""
    model: str | None = None
    """None: the first one that the server lists."""
    api_key: str | None = field(default=None, repr=False)
    seed: int = 0
    """Seed of everything random: texts, tokens, lengths, arrivals."""

    duration_seconds: float | None = None
    """Time during which requests start; those in flight then finish."""
    num_requests: int | None = None
    """Requests started; for `trace` lines read."""
    concurrency: int | None = None
    """Requests in flight. None: 16 in a closed loop, 256 if arrivals are timed."""
    rate: float | None = None
    """Poisson arrivals a second; None: closed loop, a request starts when another ends."""
    period_seconds: float = 20.0
    """One rise and fall of `bursts` and `mix`; a few scrapes of Prometheus at its usual 5 s."""
    num_sessions: int = 32
    """Conversations kept going at once: the working set that competes for the prefix cache."""

    max_tokens: int | None = None
    """Maximum tokens of a reply. None: 64; for `trace` its own lengths."""
    ignore_eos: bool | None = None
    """Generate to max_tokens (vLLM's extension). None: for `trace` only."""
    max_model_len: int | None = None
    """Context of the model; None: as `/v1/models` reports it."""
    vocab_size: int = 256
    """Token ids of prompts stay below it; 256 fits byte-level models."""
    time_scale: float = 1.0
    """Speed of a trace: 10 replays it in a tenth of its time, inf as fast as concurrency lets."""
    length_scale: float = 1.0
    """Shrinks the lengths of a trace: 1/16 makes 32 tokens of its 512-token blocks."""
    truncate: bool = False
    """Cut prompts of a trace that exceed the context, instead of skipping them."""
    timeout_seconds: float = 300.0
    """Limit of a whole request, from connecting to the last byte."""

    def __post_init__(self) -> None:
        check_url("url", self.url)
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:  # also refuses NaN
                raise SpecError(name, f"must be positive, got {value}")
        if not 2 <= self.vocab_size <= MAX_VOCAB_SIZE:
            bounds = f"at least 2 and at most {MAX_VOCAB_SIZE}"
            raise SpecError("vocab_size", f"must be {bounds}, got {self.vocab_size}")
        if self.api_key is not None and not _HEADER_VALUE.fullmatch(self.api_key):
            raise SpecError("api_key", "must be printable ASCII, which a header can carry")
        is_trace = self.scenario is Scenario.TRACE
        if is_trace and self.trace_file is None:
            raise ValueError("trace needs a FILE to replay: kvscope load trace FILE")
        if self.trace_file is not None and not is_trace:
            raise ValueError(f"{self.trace_file}: only `kvscope load trace` takes a FILE")
        if self.scenario is Scenario.TRACE and self.rate is not None:
            raise ValueError("a trace has its own arrival times: use time_scale instead of rate")

    def trace(self) -> Trace:
        """The trace to replay. Raises TraceError or OSError."""
        assert self.trace_file is not None
        return read_trace(
            self.trace_file,
            self.num_requests,
            dialect=self.trace_dialect,
            block_size=self.trace_block_size,
        )

    def tokens_of(self, trace: Trace) -> BlockTokens:
        """The prompts of a trace's requests."""
        return BlockTokens(
            block_size=trace.block_size,
            length_scale=self.length_scale,
            vocab_size=self.vocab_size,
            seed=self.seed,
        )

    @property
    def base_url(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def max_in_flight(self) -> int:
        if self.concurrency is not None:
            return self.concurrency
        return 16 if self.rate is None and self.scenario is not Scenario.TRACE else 256

    @property
    def reply_tokens(self) -> int:
        """Maximum tokens of a reply, unless a trace sets it."""
        return 64 if self.max_tokens is None else self.max_tokens

    @property
    def generates_past_eos(self) -> bool:
        return self.scenario is Scenario.TRACE if self.ignore_eos is None else self.ignore_eos


_POSITIVE = (
    "duration_seconds",
    "num_requests",
    "concurrency",
    "rate",
    "period_seconds",
    "num_sessions",
    "max_tokens",
    "max_model_len",
    "time_scale",
    "length_scale",
    "timeout_seconds",
)
