"""Options of `kvscope whatif` that place requests on replicas."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kvscope_engine.option import option


class Policy(StrEnum):
    """Values of --policy."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX_HASH = "prefix-hash"
    KV_AWARE = "kv-aware"
    SESSION = "session"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """Options as given on the command line; amounts of memory are still text."""

    PANEL: ClassVar[str] = "Routing"
    replicas: int | None = option(
        None,
        "Replay the requests on that many replicas, under each --policy; no curve is computed.",
        "N",
        least=1,
        most=1024,
    )
    policy: list[Policy] | None = option(
        None,
        "With --replicas, which of them gets a request: round-robin, least-loaded, prefix-hash, "
        "kv-aware (the longest match less the load), session (a hash of its id) or recorded (as in "
        "the recordings). May be repeated. Default: all that the files allow.",
        "POLICY",
    )
    tier: list[float] | None = option(
        None,
        "With --replicas: size of a tier that all of them share; may be repeated. Default: half, "
        "once, twice and four times all pools together.",
        "GB",
        least=0,
        most=1_000_000,
    )
    bytes_per_block: str | None = option(
        None,
        "With --replicas: K and V of one block (512 tokens in a trace), such as 64MiB. Default: "
        "the recorded pool's.",
        "BYTES",
    )
    prefix_tokens: int = option(
        1024,
        "With --replicas: leading tokens of a prompt that prefix-hash looks at.",
        "TOKENS",
        least=1,
    )
    prefill_tokens_per_second: float = option(
        8000.0,
        "With --replicas: prompt tokens that each computes a second, one request after another.",
        "TOKENS",
        least=1e-3,
    )
    decode_tokens_per_second: float = option(
        33.0,
        "With --replicas: output tokens a second of each running request.",
        "TOKENS",
        least=1e-3,
    )

    def __post_init__(self) -> None:
        if self.replicas is None:
            for flag, given in (
                ("--policy", self.policy),
                ("--tier", self.tier),
                ("--bytes-per-block", self.bytes_per_block),
            ):
                if given:
                    raise ValueError(f"{flag} needs --replicas N")
