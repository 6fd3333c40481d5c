"""The flight recorder of a process: one thread that writes what its servers' recorders noted, and
saves what is kept when something happens."""

import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope_exporter.clock import Clock, Turns
from kvscope_exporter.recorder.gaps import told
from kvscope_exporter.recorder.left import LeftoverFiles
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.recorder.ring import Ring
from kvscope_exporter.recorder.saved import (
    PREFIX,
    SavedRecording,
    kept_chunks,
    names,
    prefix_of,
    write_new,
)
from kvscope_exporter.recorder.writer import Limits

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
PAGE_NS = 15 * 10**9
"""A server that is not scraped for this long is read by its recorder."""
AFTER_NS = 120 * 10**9
"""Time after a trigger that a recording still covers."""
AGAIN_NS = 3600 * 10**9
"""Least time between two recordings of one trigger."""
END_SECONDS = 10.0
"""Time at the end of the process to write what is left, on a disk that is slow or hangs."""
ADOPT_SECONDS = 2.0
"""Time at the start for what earlier processes left; the rest is taken over later."""
SAVE_SECONDS = 5.0
"""Time that a client waits for another recording that is being saved, perhaps to a disk that hangs:
those who wait for a page need the threads as well."""
MAX_SAVED = 16
"""Saved recordings of one process; the oldest is forgotten first."""

Troubles = Callable[[], Mapping[Any, str]]
"""Returns the present troubles of a server, by trigger, with a text for people."""


@dataclass(slots=True)
class _RecordedServer:
    recorder: Recorder
    render: Callable[[], object]
    troubles: Troubles
    present: frozenset[str] = frozenset()
    fired_ns: dict[str, int] | None = None
    due: tuple[int, str, str] | None = None
    """When a recording is to be saved, its trigger and text."""


class Flight:
    """Started once; `recorder` and `forget` from any thread."""

    def __init__(
        self, limits: Limits, folder: Path | None, settings: Mapping[str, str], clock: Clock
    ) -> None:
        """folder: exists; None: everything stays in memory. Nothing that it holds, and no disk,
        keeps this from returning soon."""
        self._limits = limits
        self._folder = folder
        self._settings = dict(settings)
        self._clock = clock
        self._watched: dict[Recorder, _RecordedServer] = {}
        self._leaving: list[_RecordedServer] = []
        self._saved: list[SavedRecording] = []
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._problems: dict[Recorder, str] = {}
        self._was_held_up = False
        self._thread = threading.Thread(target=self._run, name="kvscope-recorder", daemon=True)
        if folder is not None:
            left = LeftoverFiles(folder)
            adopting = threading.Thread(
                target=self._adopt, args=(left,), name="kvscope-adopting", daemon=True
            )
            # Signals are for the main thread, which may wait for them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            adopting.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            adopting.join(ADOPT_SECONDS)

    def recorder(self, server: str, compat: list[str]) -> Recorder:
        """A recorder for a server; `watch` says how it is read."""
        return Recorder(
            server,
            Ring(self._limits.keep_ns, self._folder, prefix_of(server)),
            self._limits,
            clock=self._clock,
            compat=compat,
            settings=self._settings,
        )

    def watch(self, recorder: Recorder, render: Callable[[], object], troubles: Troubles) -> None:
        """Write this recorder from now on."""
        with self._lock:
            self._watched[recorder] = _RecordedServer(recorder, render, troubles, fired_ns={})

    def forget(self, recorder: Recorder) -> None:
        """The server is no longer watched; what was saved stays, and what is in files is saved."""
        with self._lock:
            watched = self._watched.pop(recorder, None)
            self._problems.pop(recorder, None)
            if watched is not None and self._folder is not None:
                watched.due = watched.due or (0, "exit", "the server is no longer watched")
                self._leaving.append(watched)

    def saved(self, server: str | None = None) -> list[SavedRecording]:
        """The saved recordings, the oldest first. server: only its own."""
        with self._lock:
            return [each for each in self._saved if server in (None, each.server)]

    def save(
        self, recorder: Recorder, trigger: str, text: str, *, seconds: float = -1
    ) -> SavedRecording:
        """Save what is kept of a server; only one save runs at a time. Raises OSError.

        seconds: how long to wait for another save; -1: without limit.
        """
        if not self._saving.acquire(timeout=seconds):
            raise OSError(errno.EBUSY, "another recording is being saved: ask again")
        try:
            return self._save(recorder, trigger, text)
        finally:
            self._saving.release()

    def _save(self, recorder: Recorder, trigger: str, text: str) -> SavedRecording:
        now = self._clock.now()
        recorder.rotate()
        segments = recorder.ring.since(now.monotonic_ns - self._limits.keep_ns)
        tried = names(prefix_of(recorder.server), now.wall_ns, trigger)
        path = None
        if self._folder is not None:
            path = write_new(self._folder, tried, kept_chunks(segments))
            if path is None:
                raise OSError(errno.ENOENT, "nothing of it is left", str(self._folder))
        with self._lock:
            taken = {each.name for each in self._saved}
        gaps = (segment.gap for segment in segments[1:])
        saved = SavedRecording(
            name=path.name.removeprefix(PREFIX)
            if path
            else next(n for n in tried if n not in taken),
            server=recorder.server,
            trigger=trigger,
            text=text,
            saved_ns=now.wall_ns,
            num_bytes=path.stat().st_size if path else sum(each.num_bytes for each in segments),
            problem=told([gap for gap in gaps if gap is not None]),
            segments=() if path is not None else tuple(each.copy() for each in segments),
            path=path,
        )
        with self._lock:
            self._saved.append(saved)
            self._forget_old()
        logger.info("recording saved: %s (%s)", saved.name if path is None else path, text)
        return saved

    def request(self) -> None:
        """Save every server's recording soon; callable from a signal handler."""
        self._asked.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Recording inside the block; what is kept is saved at its end, where there is a folder."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                text = "the recording lacks its end: %s took longer than %g s"
                logger.error(text, self._folder or "saving", END_SECONDS)

    def _run(self) -> None:
        turns = Turns(self._clock.monotonic_ns)
        while not self._stopping.wait(TICK_SECONDS):
            self._was_held_up = turns.was_held_up()
            asked = self._asked.is_set()
            self._asked.clear()
            for watched in self._all():
                if asked:
                    watched.due = (0, "manual", "asked for by a signal")
                self._guarded(watched, self._tick)
            self._part()
            self._bound()
        self._part()
        for watched in self._all():
            self._guarded(watched, self._finish)

    def _part(self) -> None:
        """Save the recordings of servers that are no longer watched."""
        with self._lock:
            leaving, self._leaving = self._leaving, []
        for watched in leaving:
            self._guarded(watched, self._finish)

    def _all(self) -> list[_RecordedServer]:
        with self._lock:
            return list(self._watched.values())

    def _guarded(self, watched: _RecordedServer, work: Callable[[_RecordedServer], None]) -> None:
        """A disk that is full or slow must not end the recorder: it goes on when there is room."""
        try:
            work(watched)
        except OSError as error:
            problem = f"{self._folder or error.filename}: {error.strerror or error}"
            if problem not in self._problems.values():
                text = "it cannot be written, and unless that is over soon the recording has a gap"
                logger.error("%s: %s", text, problem)
            self._problems[watched.recorder] = problem
        except Exception:
            logger.exception("the recorder of %s failed", watched.recorder.server)
        else:
            if self._problems.pop(watched.recorder, None) and not self._problems:
                logger.info("the recording can be written again")

    def _tick(self, watched: _RecordedServer) -> None:
        recorder, now = watched.recorder, self._clock.now()
        if not self._was_held_up:
            self._look(watched, now.monotonic_ns)
        if now.monotonic_ns - recorder.last_page_ns >= PAGE_NS:
            watched.render()
        recorder.write()
        if watched.due is not None and now.monotonic_ns >= watched.due[0]:
            _, trigger, text = watched.due
            watched.due = None
            self.save(recorder, trigger, text)

    def _look(self, watched: _RecordedServer, now_ns: int) -> None:
        """Whether something has begun for which a recording is saved."""
        troubles = watched.troubles()
        fired = watched.fired_ns
        assert fired is not None
        for trigger in sorted(troubles.keys() - watched.present):
            watched.recorder.mark(trigger, troubles[trigger])
            if now_ns - fired.get(trigger, -AGAIN_NS) >= AGAIN_NS and watched.due is None:
                fired[trigger] = now_ns
                watched.due = (now_ns + AFTER_NS, trigger, troubles[trigger])
        watched.present = frozenset(troubles)

    def _finish(self, watched: _RecordedServer) -> None:
        if watched.due is not None or self._folder is not None:
            _, trigger, text = watched.due or (0, "exit", "the exporter ended")
            watched.render()  # folds what has arrived, so that it is recorded
            self.save(watched.recorder, trigger, text)
            watched.recorder.ring.clear()

    def _bound(self) -> None:
        """All servers share the bytes that are kept: the largest recording gives first."""
        while True:
            rings = sorted(
                (watched.recorder.ring for watched in self._all()), key=lambda ring: ring.num_bytes
            )
            total = sum(ring.num_bytes for ring in rings)
            if total <= self._limits.keep_bytes or not any(
                ring.drop_oldest() for ring in reversed(rings)
            ):
                return

    def _adopt(self, left: LeftoverFiles) -> None:
        """Recordings of earlier processes; what one left when it was killed becomes one of them."""
        try:
            for saved in left.take(self._has_room):
                with self._lock:
                    self._saved = sorted([*self._saved, saved], key=lambda each: each.saved_ns)
                    self._forget_old()
        except Exception:
            logger.exception("recordings of earlier processes stay as they are")

    def _has_room(self, num_bytes: int) -> bool:
        """Whether an older recording of this size is kept beside the others."""
        with self._lock:
            sizes = [each.num_bytes for each in self._saved]
        total = sum(sizes) + num_bytes
        return not sizes or (len(sizes) < MAX_SAVED and total <= self._limits.keep_bytes)

    def _forget_old(self) -> None:
        while len(self._saved) > 1 and (
            len(self._saved) > MAX_SAVED
            or sum(each.num_bytes for each in self._saved) > self._limits.keep_bytes
        ):
            self._saved.pop(0).forget()
