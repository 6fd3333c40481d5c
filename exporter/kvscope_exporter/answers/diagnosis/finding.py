"""Something that was found, and the order in which findings can follow from each other."""

from dataclasses import dataclass, field

from kvscope_exporter.catalogue.incident import Kind


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


SYMPTOMS: frozenset[Kind] = frozenset(
    (
        *("restarted", "cache_reset", "new_content", "cache_too_small", "stalled", "gone"),
        *("observer_stopped", "ledger", "out_of_memory", "preemptions", "latency", "slow_tokens"),
        *("given_up", "failures", "refusals"),
    )
)
"""Harm in itself; the others are only named if harm came of them."""

_SLOWER: tuple[Kind, ...] = ("queue", "latency", "slow_tokens", "given_up")
_FULLER: tuple[Kind, ...] = ("pool_full", "preemptions", "refusals", *_SLOWER)
LEADS_TO: dict[Kind, tuple[Kind, ...]] = {
    "neighbour": ("out_of_memory", "slow_steps"),
    "slowed_down": ("slow_steps", *_FULLER),
    "restarted": ("cache_reset", "new_content", "failures", "refusals", *_SLOWER),
    "cache_reset": ("new_content", "preemptions", *_SLOWER),
    "new_content": ("preemptions", *_SLOWER),
    "cache_too_small": _SLOWER,
    "longer_prompts": ("new_content", "cache_too_small", "slow_steps", "out_of_memory", *_FULLER),
    "longer_answers": ("cache_too_small", *_FULLER),
    "retries": ("cache_too_small", "out_of_memory", *_FULLER),
    "more_requests": ("cache_too_small", "out_of_memory", *_FULLER),
    "slow_steps": ("stalled", *_FULLER),
    "stalled": ("gone", "failures", "refusals", *_SLOWER),
    "gone": ("failures", "refusals", *_SLOWER),
    "pool_full": ("cache_too_small", "preemptions", "queue", "latency", "slow_tokens", "given_up"),
    "out_of_memory": ("preemptions", "failures", "slow_steps", "gone", *_SLOWER),
    "preemptions": _SLOWER,
    "queue": ("latency", "given_up", "refusals"),
    "latency": ("given_up",),
    "slow_tokens": ("given_up",),
    "failures": ("gone",),
}
"""Possible effects of each kind, without circles. A retry storm is one, where requests are given up
and come again: there the rise of requests is called by that name."""
