"""Token slots written in active blocks, from the requests' own counts, a few times a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope_events.observers.vllm.requests import computed_tokens

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

TELL_NS = 250_000_000
"""The count looks at every request, so not every step has it."""


def slots_filled(observer: Observer, now_ns: int) -> int | None:
    """None if not known: between two counts, and in pools whose blocks fill up differently.

    References beyond the first are those of full blocks, whose slots count once.
    """
    if now_ns - observer.slots_told_ns < TELL_NS:
        return None
    observer.slots_told_ns = now_ns
    if observer.deferred:  # blocks without a request
        return None
    counts = observer.counts
    tokens = 0
    for request in observer.scheduler.requests.values():
        if request.num_computed_tokens:
            tokens += computed_tokens(request)
    again = (counts.references - counts.active) * observer.block_size
    filled = tokens - again
    return filled if 0 <= filled <= counts.active * observer.block_size else None
