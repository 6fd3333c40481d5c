"""Flight recorders whose time is set by hand."""

from pathlib import Path
from typing import ClassVar

from kvscope_events.bus import EventBus
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.targets.exporter import in_process

SECOND = 10**9


class Stage:
    """A recorded server whose time is set by hand."""

    recorders: ClassVar[list[Recorder]] = []

    def __init__(self, folder: Path | None, keep_seconds: int = 60, keep_bytes: int = 1 << 20):
        self.now_ns = 10**15
        self.ahead_ns = 10**18
        """The wall clock less the monotonic one; changed, it is set."""
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns + self.ahead_ns)
        limits = Limits(keep_ns=keep_seconds * SECOND, keep_bytes=keep_bytes)
        self.flight = Flight(limits, folder, {}, self.clock)
        self.bus = EventBus()
        self.recorder = self.flight.recorder("llama 3/8b", ["vllm"])
        self.exporter = in_process(
            self.bus.subscribe(), compat=["vllm"], clock=self.clock, recorder=self.recorder
        )
        self.troubles: dict[str, str] = {}
        self.recorders.append(self.recorder)
        self.flight.watch(self.recorder, self.exporter.render, lambda: self.troubles)

    def tell(self, *events: object) -> None:
        for event in events:
            self.bus.emit(event)  # type: ignore[arg-type]
        self.bus.flush()
        self.exporter.render()

    def tick(self, seconds: float = 1) -> None:
        """Let time pass, and the recorder's thread take its turn."""
        self.now_ns += round(seconds * SECOND)
        for watched in self.flight._all():
            self.flight._guarded(watched, self.flight._tick)
        self.flight._bound()

    def kill(self) -> None:
        """Leave the folder as a process does that is killed: the kernel closes its files."""
        for segment in self.recorder.ring.segments:
            segment.release()
        self.recorder.ring.segments.clear()
