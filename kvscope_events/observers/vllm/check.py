"""The observer's check of itself: what it counted is what the pool says.

A difference costs nothing but a snapshot; a second one within a minute is a vLLM that works in
another way than we know, so the observer goes off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope_events.observers.vllm.log import warn

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

PROBATION_NS = 60_000_000_000


def check_counts(observer: Observer, active: int, now_ns: int) -> None:
    """Called with the pool's own count where it is another, or where a whole comparison failed."""
    counted = observer.counts.active
    observer.in_doubt = False
    if counted != active:
        text = f"counted {counted} active blocks, the pool has {active}"
    else:
        text = f"counted {observer.counts.as_tuple()} active, cached, references; the pool differs"
    differ(observer, text, now_ns)


def differ(observer: Observer, text: str, now_ns: int) -> None:
    """Note a difference: restart from a snapshot, or end."""
    last_ns, observer.difference_ns = observer.difference_ns, now_ns
    observer.differences += 1
    if last_ns is not None and now_ns - last_ns < PROBATION_NS:
        observer.off(
            f"this vLLM works differently from known versions: {text}, twice within a minute"
        )
        return
    warn(f"{text}; continuing from a snapshot of the pool")
    observer.snapshot_owed = True
