"""The engine itself, and its observer."""

from collections.abc import Iterator

from kvscope_exporter.answers.diagnosis.course import SLICE_NS
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.shift import RECENT_SLICES

_STALLED_NS = 10 * 10**9


def engine(scene: Scene) -> Iterator[Finding]:
    """The engine or its observer is not what it was."""
    now, course = scene.now_ns, scene.course
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
            remedy="`kvscope stacks` prints where its threads are; then restart it.",
        )
    since_ns = now - RECENT_SLICES * SLICE_NS
    for restart_ns in [each for each in course.restarts_ns if each > since_ns][-1:]:
        yield Finding(
            kind="restarted",
            began_ns=restart_ns,
            ended_ns=restart_ns,
            text="the engine was restarted: its cache is empty",
            remedy="Its log before that moment says why it ended.",
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
