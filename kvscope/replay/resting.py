"""Playbacks that rest at moments of one recording, since a playback cannot go back.

To go to a moment takes the nearest one before it. A thread makes some at even distances, those in
the middle first; each costs the time of playing up to there.
"""

import threading
from collections.abc import Callable

from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback

MOST = 12
"""Playbacks that rest; an hour has one every five minutes."""
_PORTION_NS = 5 * 10**9
_PORTIONS = 1000
"""Played by the thread at once, while a reader waits; of a recording of days more."""


class RestingPlaybacks:
    """Methods for the thread of one reader; from `start` on, playbacks are made beside it."""

    def __init__(self, file: RecordingFile, begin: Callable[[], Playback]) -> None:
        """begin: makes a playback of the file, at its beginning."""
        self._begin = begin
        self._begins_ns, self._ends_ns = file.begins_ns, file.ends_ns
        self._playbacks: list[Playback] = []  # in the order of their moments
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make playbacks beside the reader, until `stop`."""
        self._wanted.set()
        self._thread = threading.Thread(target=self._run, name="kvscope-resting", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all that rest."""
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for playback in self._playbacks:
                playback.close()
            self._playbacks.clear()

    @property
    def wanting(self) -> bool:
        """Whether some will still be made."""
        return self._middle() is not None

    def exchange(self, playback: Playback, wall_ns: int) -> Playback:
        """A playback at this moment for the present one, which rests from now on."""
        with self._turn:
            self._rest(playback)
            with self._lock:
                before = [each for each in self._playbacks if each.wall_ns <= wall_ns]
                if before:
                    self._playbacks.remove(before[-1])
            nearest = before[-1] if before else self._begin()
            nearest.to(wall_ns)
        self._wanted.set()
        return nearest

    def _rest(self, playback: Playback) -> None:
        with self._lock:
            self._playbacks = sorted([*self._playbacks, playback], key=lambda each: each.wall_ns)
            if len(self._playbacks) > MOST:
                # Without this one the widest stretch grows least.
                moments = [self._begins_ns, *(each.wall_ns for each in self._playbacks)]
                moments.append(self._ends_ns)
                gaps = [after - before for before, after in zip(moments, moments[2:], strict=False)]
                self._playbacks.pop(gaps.index(min(gaps))).close()

    def _run(self) -> None:
        portion_ns = max(_PORTION_NS, (self._ends_ns - self._begins_ns) // _PORTIONS)
        while not self._stopping.is_set():
            moment = self._middle()
            if moment is None:
                self._wanted.clear()
                if self._middle() is None:
                    self._wanted.wait()
                continue
            playback = self._begin()
            while playback.wall_ns < moment and not self._stopping.is_set():
                with self._turn:
                    playback.to(min(moment, playback.wall_ns + portion_ns))
            self._rest(playback)

    def _middle(self) -> int | None:
        """Middle of the longest row of places from which the nearest playback is far; None: there
        is no such place."""
        step_ns = max(1, (self._ends_ns - self._begins_ns) // (MOST + 1))
        with self._lock:
            moments = [self._begins_ns, *(each.wall_ns for each in self._playbacks)]
        far: list[list[int]] = [[]]
        for place in range(self._begins_ns + step_ns, self._ends_ns - step_ns + 1, step_ns):
            if any(place - step_ns < moment <= place for moment in moments):
                far.append([])
            else:
                far[-1].append(place)
        row = max(far, key=len)
        return row[len(row) // 2] if row and len(moments) <= MOST else None
