"""Plays a recording while it is served: play, pause, speed, seek, one step."""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kvscope.replay.resting import RestingPlaybacks
from kvscope_exporter.answers.question import Question
from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.live.following import LiveFold
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.replay.playback import Index, Playback
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.targets.reply import Reply
from kvscope_exporter.targets.target import Target

MAX_SPEED = 1000.0
_NEAR_NS = 10 * 10**9
"""So far ahead is played at once."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The player's present state; times are Unix times in seconds."""

    server: str
    at: float
    begins: float
    ends: float
    speed: float
    playing: bool
    problem: str | None
    marks: list[tuple[float, str, str]]


def status_of(file: RecordingFile, index: Index, at_ns: int) -> Status:
    """The state of a player that stands at a moment."""
    return Status(
        server=file.opened.server,
        at=at_ns / 1e9,
        begins=file.begins_ns / 1e9,
        ends=file.ends_ns / 1e9,
        speed=1.0,
        playing=False,
        problem=file.problem,
        marks=[(mark.wall_ns / 1e9, mark.trigger, mark.text) for mark in index.marks],
    )


class Player:
    """The recorded server, at a moment that moves; for any thread."""

    recorder: Recorder | None = None

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises RecordingError."""
        self._clock = clock
        self._lock = threading.RLock()
        self.file = RecordingFile(path)
        self._playback = Playback(self.file, listeners=lambda: [LiveFold(is_shared=True)])
        self._resting = RestingPlaybacks(self.file, self._playback.again)
        self._playing = False
        self._speed = 1.0
        self._since = clock()
        self._at_ns = self.file.begins_ns

    @property
    def server(self) -> str:
        return self.file.opened.server

    @property
    def presence(self) -> Presence:
        return self._playback.exporter.presence

    @property
    def at_ns(self) -> int:
        """The present moment, exactly."""
        with self._lock:
            return self._follow()

    def status(self) -> Status:
        with self._lock:
            at_ns = self._follow()
            standing = status_of(self.file, self._playback.index, at_ns)
            return msgspec.structs.replace(standing, speed=self._speed, playing=self._playing)

    def play(self, speed: float) -> None:
        """Let time run, this many times as fast as it did."""
        with self._lock:
            self._follow()
            self._speed, self._playing = min(MAX_SPEED, max(0.01, speed)), True

    def pause(self) -> None:
        with self._lock:
            self._follow()
            self._playing = False

    def seek(self, wall_ns: int) -> None:
        """Go to a moment; one outside the recording is its nearest end."""
        with self._lock:
            self._since = self._clock()
            self._at_ns = min(self.file.ends_ns, max(self.file.begins_ns, wall_ns))
            self._go()

    def step(self, steps: int) -> None:
        """Go forward by this many batches, or back, and pause."""
        with self._lock:
            self._follow()
            self._playing = False
            times = self._playback.index.batches_ns
            if steps >= 0:
                place = bisect_right(times, self._at_ns) + steps - 1
            else:
                place = bisect_left(times, self._at_ns) + steps
            if times:
                self.seek(times[min(len(times) - 1, max(0, place))])

    def render(self, accept: str | None = None, detail: Detail | None = None) -> tuple[bytes, str]:
        with self._lock:
            self._follow()
            return self._playback.exporter.render(accept, detail)

    def answer(self, question: Question[Any]) -> Reply:
        with self._lock:
            self._follow()
            return self._playback.exporter.answer(question)

    @contextmanager
    def present(self) -> Iterator[Sequence[Target]]:
        """Its targets for a live view, at the moment."""
        with self._lock:
            self._follow()
            with self._playback.exporter.present() as targets:
                yield targets

    def compact(self) -> bytes:
        with self._lock:
            self._follow()
            return self._playback.exporter.compact()

    def start(self) -> None:
        """Prepare for going to any moment, on a thread of its own."""
        self._resting.start()

    @property
    def preparing(self) -> bool:
        """Whether going to some moments takes longer than it will."""
        return self._resting.wanting

    def close(self) -> None:
        self._resting.stop()
        with self._lock:
            self._playback.close()

    def _follow(self) -> int:
        """Go to the present moment of the player."""
        now = self._clock()
        if self._playing:
            self._at_ns += round((now - self._since) * 1e9 * self._speed)
            if self._at_ns >= self.file.ends_ns:
                self._at_ns, self._playing = self.file.ends_ns, False
        self._since = now
        self._go()
        return self._at_ns

    def _go(self) -> None:
        ahead_ns = self._at_ns - self._playback.wall_ns
        if 0 <= ahead_ns <= _NEAR_NS:
            self._playback.to(self._at_ns)
        else:
            self._playback = self._resting.exchange(self._playback, self._at_ns)
