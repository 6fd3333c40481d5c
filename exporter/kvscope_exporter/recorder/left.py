"""Recordings that earlier processes left in the folder: saved ones, and segments of those that were
killed, which become saved ones.

Nothing here raises: what cannot be taken over stays as it is, and the log names it. A segment is
left over if no process holds the lock of its recorder's newest; process numbers say nothing, since
another container has the same.
"""

import errno
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from kvscope_events.printable import quoted
from kvscope_exporter.files.private import is_removed, lock, open_own
from kvscope_exporter.recorder.format import RecordingError
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.ring import SUFFIX, chunks_of
from kvscope_exporter.recorder.saved import PART, PREFIX, SavedRecording, names, write_new

logger = logging.getLogger(__name__)

_SEGMENT = re.compile(
    r"(?P<server>[A-Za-z0-9_.]{0,64})-(?P<recorder>[0-9a-f]+)-(?P<number>\d+)", re.ASCII
)
_SAVED = re.compile(
    PREFIX + r"(?P<server>[A-Za-z0-9_.]{0,64})-\d{8}T\d{6}(_\d+)?-(?P<trigger>[a-z_]+)", re.ASCII
)
_MOST_NAMED = 100
"""Files that are named in the log, so that a folder full of others does not fill it."""
_AT_ONCE = 32
"""Recorders whose segments are locked at once, by one open file each."""


@dataclass(slots=True, order=True)
class _Found:
    changed_ns: int
    """Wall clock of its last change."""
    server: str = field(compare=False)
    paths: list[Path] = field(compare=False)
    """One saved recording, or the segments of one recorder, the newest last."""
    trigger: str | None = field(default=None, compare=False)
    """None: segments."""
    num_bytes: int = field(default=0, compare=False)


class LeftoverFiles:
    """The content of a folder; `take` one by one, the newest first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._num_named = 0
        self._in_parts: set[str] = set()
        """Names of recordings that have no file under them."""

    def take(self, has_room: Callable[[int], bool]) -> Iterator[SavedRecording]:
        """Saved recordings. Those of killed processes are put together just before.

        has_room: whether one of this size is kept; from the first that is not, all are removed.
        """
        found = sorted(self._found(), reverse=True)
        removed = 0
        for first in range(0, len(found), _AT_ONCE):
            some = found[first : first + _AT_ONCE]
            with ExitStack() as locks:
                held = self._claimed([each for each in some if each.trigger is None], locks)
                for each in some:
                    if each.trigger is None and each.paths[-1] not in held:
                        continue
                    if removed or not has_room(each.num_bytes):
                        removed += 1
                        self._remove(each.paths)
                        continue
                    if each.trigger is not None:
                        saved = self._saved(each.paths[0], "of an earlier process")
                    else:
                        saved = self._put_together(each, held[each.paths[-1]])
                    if saved is not None:
                        yield saved
        if removed:
            logger.info("%d recordings of earlier processes were removed: --keep-bytes", removed)
        if self._num_named > _MOST_NAMED:
            logger.warning("%d more files stay as they are", self._num_named - _MOST_NAMED)

    def _found(self) -> list[_Found]:
        found: list[_Found] = []
        recorders: dict[tuple[str, str], _Found] = {}
        for name in self._names():
            path = self._folder / name
            if name.startswith(PREFIX) and name.endswith(PART):
                self._remove_part(path)
                continue
            try:
                segment = _SEGMENT.fullmatch(path.stem)  # first: a server may be named "saved"
                parts = segment or _SAVED.fullmatch(path.stem)
                if parts is None:
                    raise OSError(errno.EINVAL, "it is not named as kvscope names its recordings")
                with open_own(path) as file:
                    status = os.fstat(file.fileno())
            except OSError as error:
                self._leave(path, error)
                continue
            server, changed_ns = parts["server"], _changed_ns(status)
            if segment is None:
                if not status.st_size:  # of an older version, on a disk that was full
                    self._remove([path])
                    continue
                found.append(_Found(changed_ns, server, [path], parts["trigger"], status.st_size))
                continue
            one = recorders.setdefault((server, parts["recorder"]), _Found(0, server, []))
            one.paths.append(path)
            one.num_bytes += status.st_size
            one.changed_ns = max(one.changed_ns, changed_ns)
        for one in recorders.values():
            one.paths.sort(key=_number)
        return [*found, *recorders.values()]

    def _names(self) -> list[str]:
        try:
            listed = os.listdir(self._folder)
        except OSError as error:
            self._leave(self._folder, error)
            return []
        ours = [each for each in listed if each.endswith(SUFFIX) or each.endswith(PART)]
        return [each for each in ours if each.endswith(SUFFIX) or each.startswith(PREFIX)]

    def _claimed(self, found: list[_Found], locks: ExitStack) -> Mapping[Path, FileIO]:
        """Locks on the newest segment of each recorder that has ended, until `locks` is closed."""
        held = {}
        for each in found:
            newest = each.paths[-1]
            try:
                file = locks.enter_context(open_own(newest, os.O_RDWR))
                if lock(file) and not is_removed(file):
                    held[newest] = file
            except OSError as error:
                self._leave(newest, error)
        if held:  # a recorder that lives may have begun another since we looked
            present = {_recorder(path): path for path in self._segments()}
            held = {
                newest: file
                for newest, file in held.items()
                if present.get(_recorder(newest), newest) == newest
            }
        return held

    def _segments(self) -> list[Path]:
        """All segments that are there now, by number."""
        paths = (self._folder / name for name in self._names())
        return sorted((each for each in paths if _SEGMENT.fullmatch(each.stem)), key=_number)

    def _put_together(self, found: _Found, held: FileIO) -> SavedRecording | None:
        """A recording of the segments; where there is no room for it, the segments are one."""
        taken: list[Path] = []

        def chunks() -> Iterator[bytes]:
            for path in found.paths:
                num_bytes = 0
                try:
                    for chunk in chunks_of(path):
                        num_bytes += len(chunk)
                        yield chunk
                    if num_bytes or not path.stat().st_size:
                        taken.append(path)
                    else:
                        raise OSError(errno.EINVAL, "it is not a recording")
                except OSError as error:
                    self._leave(path, error)

        tried = names(found.server, found.changed_ns, "killed")
        try:
            whole = write_new(self._folder, tried, chunks())
        except OSError as error:
            reason = error.strerror or str(error)
            logger.warning("%s stays in parts: %s", quoted(str(found.paths[-1])), reason)
            return self._of_parts(found, held)
        self._remove(taken)
        if whole is None:
            return None
        with suppress(OSError):  # the oldest is removed first, also by a later process
            os.utime(whole, ns=(found.changed_ns, found.changed_ns))
        return self._saved(whole, "of a process that was killed")

    def _of_parts(self, found: _Found, held: FileIO) -> SavedRecording:
        tried = names(found.server, found.changed_ns, "killed")
        taken = (each for each in tried if not (self._folder / f"{PREFIX}{each}").exists())
        name = next(each for each in taken if each not in self._in_parts)
        self._in_parts.add(name)
        return SavedRecording(
            name=name,
            server=found.server,
            trigger="killed",
            text="of a process that was killed",
            saved_ns=found.changed_ns,
            num_bytes=found.num_bytes,
            left=tuple(found.paths),
            lock=os.dup(held.fileno()),
        )

    def _saved(self, path: Path, text: str) -> SavedRecording | None:
        parts = _SAVED.fullmatch(path.stem)
        assert parts is not None
        try:
            status = path.lstat()
            problem = RecordingFile(path, open_own).problem
        except OSError as error:
            self._leave(path, error)
            return None
        except RecordingError as error:
            self._leave(path, OSError(errno.EINVAL, str(error).removeprefix(f"{path}: ")))
            return None
        return SavedRecording(
            name=path.name.removeprefix(PREFIX),
            server=parts["server"],
            trigger=parts["trigger"],
            text=text,
            saved_ns=_changed_ns(status),
            num_bytes=status.st_size,
            problem=problem,
            path=path,
        )

    def _remove(self, paths: list[Path]) -> None:
        """The newest last, by which the others are locked."""
        for path in paths:
            try:
                path.unlink()
            except OSError as error:
                self._leave(path, error)

    def _remove_part(self, path: Path) -> None:
        """A file that a killed process was writing; what it was made of is still there."""
        try:
            with open_own(path, os.O_RDWR) as file:
                if lock(file):
                    path.unlink(missing_ok=True)
        except OSError as error:
            self._leave(path, error)

    def _leave(self, path: Path, error: OSError) -> None:
        if isinstance(error, FileNotFoundError):  # another process was faster
            return
        self._num_named += 1
        if self._num_named <= _MOST_NAMED:
            reason = error.strerror or str(error)
            logger.warning("%s stays as it is: %s", quoted(str(path)), quoted(reason))


def _changed_ns(status: os.stat_result) -> int:
    """Not later than now: such a time, which no calendar may have, is another clock's or wrong."""
    return max(0, min(status.st_mtime_ns, time.time_ns()))


def _recorder(path: Path) -> str:
    return path.stem.rpartition("-")[0]


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
