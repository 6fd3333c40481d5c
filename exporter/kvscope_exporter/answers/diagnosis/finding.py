"""A clause of the answer: a cause, or the harm that it did."""

from dataclasses import dataclass, field

from kvscope_exporter.catalogue.incident import Kind
from kvscope_exporter.state.time_parts import PARTS, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A clause of the answer."""

    kind: Kind
    began_ns: int
    """Our monotonic clock."""
    ended_ns: int | None
    """None: it goes on."""
    text: str
    remedy: str = ""
    """For the operator, if this is the cause."""
    evidence: dict[str, float] = field(default_factory=dict)


KIND_OF: dict[Part, Kind] = {
    "wait_sequences": "sequence_limit",
    "wait_blocks": "pool_full",
    "wait_tokens": "token_budget",
    "wait_transfer": "transfer",
    "wait_unexplained": "not_admitting",
    "wait_step": "long_steps",
    "preempted": "preemptions",
    "prefill_own": "prefill",
    "prefill_again": "preemptions",
    "prefill_others": "interference",
    "decode": "long_steps",
    "decode_prefills": "interference",
    "slow": "slow_steps",
    "host": "host",
    "unknown": "latency",
}
"""The cause of harm that consists of this part."""


def by_kind(parts: list[int]) -> dict[Kind, float]:
    """Seconds by cause, those without any left out. parts: nanoseconds, in the order of PARTS."""
    seconds: dict[Kind, float] = {}
    for part, time_ns in zip(PARTS, parts, strict=True):
        if time_ns:
            kind = KIND_OF[part]
            seconds[kind] = seconds.get(kind, 0.0) + time_ns / 1e9
    return seconds
