"""The engine itself, and its observer."""

from collections.abc import Iterator
from typing import Literal

from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene

Confidence = Literal["high", "medium", "low"]
_STALLED_NS = 10 * 10**9


def engine(scene: Scene) -> Iterator[Finding]:
    """The engine or its observer is not what it was."""
    now = scene.now_ns
    silent, last = scene.silent_since_ns, scene.last_step_ns
    if silent is not None:
        yield Finding(
            kind="gone",
            began_ns=silent or now,
            ended_ns=None,
            text=f"the engine has been silent for {(now - silent) / 1e9:,.0f} s"
            if silent
            else "the engine was never heard",
            remedy="Look for its process and its last log lines; the kernel's log has the reason "
            "if it was killed.",
        )
    elif last is not None and scene.has_work and now - last > _STALLED_NS:
        yield Finding(
            kind="stalled",
            began_ns=last,
            ended_ns=None,
            text=f"no step has ended for {(now - last) / 1e9:,.0f} s, although requests wait",
            remedy="`kvscope observer stacks` prints where its threads are; then restart it.",
        )
    if scene.observer_stopped is not None:
        yield Finding(
            kind="observer_stopped",
            began_ns=last or now,
            ended_ns=None,
            text=f"the observer is off: {scene.observer_stopped}",
            remedy="The server goes on unharmed and unseen. If it stopped by itself, report the "
            "message, and restart the server to observe it again.",
        )
    elif scene.imbalance:
        yield Finding(
            kind="ledger",
            began_ns=last or now,
            ended_ns=None,
            text=f"{scene.imbalance:,} blocks differ from the engine's own count",
            remedy="Figures of blocks are wrong until the next snapshot; save a recording and "
            "report it.",
        )
