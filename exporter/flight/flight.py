"""The flight recorder of a process: one thread that writes what its servers' recorders noted, and
saves what is kept when something happens."""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exporter.clock import Clock, Turns
from exporter.flight.recorder import Limits, Recorder
from exporter.flight.ring import SUFFIX, Ring, Segment

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
MAX_SAVED = 16
"""Saved recordings of one process; the oldest is forgotten first."""

Troubles = Callable[[], Mapping[Any, str]]
"""Returns the present troubles of a server, by trigger, with a text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A recording that was saved."""

    name: str
    server: str
    trigger: str
    text: str
    saved_ns: int
    """Wall clock."""
    num_bytes: int
    segments: tuple[Segment, ...]
    """In memory; empty if it is a file."""
    path: Path | None

    def read(self) -> Iterator[bytes]:
        """Its segments. Raises OSError."""
        if self.path is not None:
            yield self.path.read_bytes()
        for segment in self.segments:
            yield segment.read()


@dataclass(slots=True)
class _Watched:
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
        """folder: exists and is writable; None: everything stays in memory."""
        self._limits = limits
        self._folder = folder
        self._settings = dict(settings)
        self._clock = clock
        self._watched: dict[Recorder, _Watched] = {}
        self._saved: list[Saved] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._problem: str | None = None
        self._was_held_up = False
        if folder is not None:
            self._adopt(folder)
        self._thread = threading.Thread(target=self._run, name="kvscope-recorder", daemon=True)

    def recorder(self, server: str, compat: list[str]) -> Recorder:
        """A recorder for a server; `watch` says how it is read."""
        prefix = f"{_prefix(server)}-{os.getpid()}"
        return Recorder(
            server,
            Ring(self._limits.keep_ns, self._folder, prefix),
            self._limits,
            clock=self._clock,
            compat=compat,
            settings=self._settings,
        )

    def watch(self, recorder: Recorder, render: Callable[[], object], troubles: Troubles) -> None:
        """Write this recorder from now on."""
        with self._lock:
            self._watched[recorder] = _Watched(recorder, render, troubles, fired_ns={})

    def forget(self, recorder: Recorder) -> None:
        """The server is no longer watched; what was saved stays."""
        with self._lock:
            self._watched.pop(recorder, None)

    def saved(self, server: str | None = None) -> list[Saved]:
        """The saved recordings, the oldest first. server: only its own."""
        with self._lock:
            return [each for each in self._saved if server in (None, each.server)]

    def save(self, recorder: Recorder, trigger: str, text: str) -> Saved:
        """Save what is kept of a server. Raises OSError."""
        now_ns = self._clock.wall_ns()
        recorder.rotate()
        segments = recorder.ring.since(now_ns - self._limits.keep_ns)
        name = f"{_prefix(recorder.server)}-{_stamp(now_ns)}-{trigger}{SUFFIX}"
        path = None if self._folder is None else self._folder / f"saved-{name}"
        if path is not None:
            _write_whole(path, segments)
        saved = Saved(
            name=name,
            server=recorder.server,
            trigger=trigger,
            text=text,
            saved_ns=now_ns,
            num_bytes=sum(segment.num_bytes for segment in segments),
            segments=() if path is not None else tuple(each.copy() for each in segments),
            path=path,
        )
        with self._lock:
            self._saved = [each for each in self._saved if each.name != name] + [saved]
            self._forget_old()
        logger.info("recording saved: %s (%s)", name if path is None else path, text)
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
            self._bound()
        for watched in self._all():
            self._guarded(watched, self._finish)

    def _all(self) -> list[_Watched]:
        with self._lock:
            return list(self._watched.values())

    def _guarded(self, watched: _Watched, work: Callable[[_Watched], None]) -> None:
        """A disk that is full or slow must not end the recorder: it goes on when there is room."""
        try:
            work(watched)
        except OSError as error:
            problem = f"{self._folder or error.filename}: {error.strerror}"
            if problem != self._problem:
                logger.error("the recording has a gap, it cannot be written: %s", problem)
            self._problem = problem
            watched.recorder.break_off()
        except Exception:
            logger.exception("the recorder of %s failed", watched.recorder.server)
        else:
            self._problem = None

    def _tick(self, watched: _Watched) -> None:
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

    def _look(self, watched: _Watched, now_ns: int) -> None:
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

    def _finish(self, watched: _Watched) -> None:
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

    def _adopt(self, folder: Path) -> None:
        """Recordings of earlier processes; what one left when it was killed becomes one of them.
        Raises OSError."""
        left: dict[tuple[str, int], list[Path]] = {}
        for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns):
            if path.name.startswith("saved-"):
                self._adopt_saved(path)
                continue
            parts = path.stem.rsplit("-", 2)
            if len(parts) == 3 and parts[1].isdigit() and not _is_running(int(parts[1])):
                left.setdefault((parts[0], int(parts[1])), []).append(path)
        for (server, _), paths in left.items():
            stamp = _stamp(paths[-1].stat().st_mtime_ns)
            whole = folder / f"saved-{server}-{stamp}-killed{SUFFIX}"
            with whole.open("wb") as file:
                for path in paths:
                    file.write(path.read_bytes())
            whole.chmod(0o600)
            for path in paths:
                path.unlink()
            self._adopt_saved(whole)
        self._forget_old()

    def _adopt_saved(self, path: Path) -> None:
        name = path.name.removeprefix("saved-")
        server, _, trigger = name.removesuffix(SUFFIX).rsplit("-", 2)
        status = path.stat()
        self._saved.append(
            Saved(
                name=name,
                server=server,
                trigger=trigger,
                text="of an earlier process",
                saved_ns=status.st_mtime_ns,
                num_bytes=status.st_size,
                segments=(),
                path=path,
            )
        )

    def _forget_old(self) -> None:
        while len(self._saved) > 1 and (
            len(self._saved) > MAX_SAVED
            or sum(each.num_bytes for each in self._saved) > self._limits.keep_bytes
        ):
            oldest = self._saved.pop(0)
            if oldest.path is not None:
                oldest.path.unlink(missing_ok=True)


def _prefix(server: str) -> str:
    """The server's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", server)[:64]


def _stamp(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%S")


def _is_running(pid: int) -> bool:
    """Whether another process has that number; ours has only just begun to write."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write_whole(path: Path, segments: list[Segment]) -> None:
    """A file that is there only once it is whole. Raises OSError."""
    temporary = path.with_suffix(".part")
    place = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(place, "wb") as file:
            for segment in segments:
                file.write(segment.read())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
