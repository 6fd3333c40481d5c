"""The observer's self-check: its own counts against those of the pool.

A difference costs only a snapshot; a second one within a minute means that this vLLM works in a way
we do not know, so the observer switches itself off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope_events.observers.log import warn

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

PROBATION_NS = 60_000_000_000


def check_counts(observer: Observer, active: int, now_ns: int) -> None:
    """Called with the pool's own count if it differs, or if a full comparison failed."""
    counted = observer.counts.active
    observer.in_doubt = False
    if counted != active:
        text = f"counted {counted} active blocks, the pool has {active}"
    else:
        text = f"counted {observer.counts.as_tuple()} active, cached, references; the pool differs"
    differ(observer, text, now_ns)


def differ(observer: Observer, text: str, now_ns: int) -> None:
    """Handle a difference: restart from a snapshot, or switch off."""
    last_ns, observer.difference_ns = observer.difference_ns, now_ns
    observer.differences += 1
    if last_ns is not None and now_ns - last_ns < PROBATION_NS:
        observer.off(
            f"this vLLM works differently from known versions: {text}, twice within a minute"
        )
        return
    warn(f"{text}; continuing from a snapshot of the pool")
    observer.snapshot_owed = True
