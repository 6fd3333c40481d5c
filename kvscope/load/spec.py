"""The load to generate: one frozen specification, checked with its URLs when it is built."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import httpx

from kvscope.load.tokens import BlockTokens
from kvscope.traces import Dialect, Trace, read_trace
from kvscope_engine.option import option, settings

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """A run of the generator. Without duration and number it continues until it is stopped."""

    url: str = "http://127.0.0.1:8000"
    """Base URL of an OpenAI-compatible server, with or without `/v1`."""
    scenario: Scenario = Scenario.CHAT
    trace_file: Path | None = None
    """Trace to replay; for `trace` only."""
    model: str | None = option(None, "Model to request. Default: the first of /v1/models.")
    api_key: str | None = field(default=None, repr=False)
    """Bearer token to send."""
    duration_seconds: float | None = option(
        None,
        "How long requests start. Default: 1m; with --num-requests or a trace, until "
        "those are sent.",
        "DURATION",
        flags=("--duration",),
    )
    """Those in flight then finish."""
    num_requests: int | None = option(
        None,
        "Requests to send, or lines of the trace to read.",
        flags=("--num-requests", "--limit"),
    )
    concurrency: int | None = option(
        None,
        "Requests in flight. Default: 16, and a request starts when another ends. With --rate "
        "(default 256) further arrivals are dropped; with a trace (256) they wait.",
    )
    rate: float | None = option(
        None, "Poisson arrivals per second, independent of how many are in flight."
    )
    """None: closed loop, a request starts when another ends."""
    max_tokens: int | None = option(
        None, "Longest reply in tokens. Default: 64; for a trace its own lengths."
    )
    ignore_eos: bool | None = option(
        None,
        "Generate to the requested length (vLLM's extension). Default: for a trace only.",
    )
    max_model_len: int | None = option(
        None, "Context of the model. Default: the one in /v1/models."
    )
    vocab_size: int = option(
        256, "Upper limit of token ids sent by rag and trace. 256 suits byte-level models."
    )
    num_sessions: int = option(
        32,
        "Conversations open at once: the working set of the prefix cache.",
        flags=("--sessions",),
    )
    period_seconds: float = option(
        20.0, "Length of one rise and fall in bursts and mix.", "DURATION", flags=("--period",)
    )
    """A few scrapes of Prometheus at its usual 5 s."""
    time_scale: float = option(
        1.0, "Speed of a trace; inf: in order, as fast as --concurrency allows."
    )
    length_scale: float = option(
        1.0, "Scale of a trace's lengths: 0.0625 makes 32 tokens of a 512-token block."
    )
    truncate: bool = option(
        False,
        "Cut a trace's prompts that exceed the context, instead of skipping them.",
        flags=("--truncate",),
    )
    trace_dialect: Dialect | None = option(
        None, "Format of the trace. Default: recognised by its rows.", flags=("--dialect",)
    )
    trace_block_size: int | None = option(
        None,
        "Tokens behind one id of the trace. Default: what its rows show.",
        "TOKENS",
        flags=("--block-size",),
        least=1,
    )
    seed: int = option(0, "Seed; the same one makes the same workload.")
    timeout_seconds: float = 300.0
    """For a request, from connecting to the last byte."""

    def __post_init__(self) -> None:
        check_url("url", self.url)
        for setting in settings(self):
            value, flag = setting.default, setting.flags[0]
            if setting.path[0] in _POSITIVE and value is not None and not value > 0:  # also NaN
                raise ValueError(f"{flag} must be positive, got {value}")
        if not 2 <= self.vocab_size <= MAX_VOCAB_SIZE:
            bounds = f"at least 2 and at most {MAX_VOCAB_SIZE}"
            raise ValueError(f"--vocab-size must be {bounds}, got {self.vocab_size}")
        if self.api_key is not None and not _HEADER_VALUE.fullmatch(self.api_key):
            raise ValueError("the token must be printable ASCII, which a header can carry")
        is_trace = self.scenario is Scenario.TRACE
        if is_trace and self.trace_file is None:
            raise ValueError("trace needs a FILE to replay: kvscope load trace FILE")
        if self.trace_file is not None and not is_trace:
            raise ValueError(f"{self.trace_file}: only `kvscope load trace` takes a FILE")
        if is_trace and self.rate is not None:
            raise ValueError("a trace has its own arrival times: use --time-scale, not --rate")

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
