"""A folder of sockets as an endpoint, `ipc:///DIRECTORY/*`: each socket in it is a target.

A socket is used once it answers, so leftovers of a dead server are not. A target that has
introduced itself stays, whatever happens to its file, until a restart of the server has replaced
it.
"""

import logging
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope_events.events import Hello
from kvscope_events.throttle import HOUR_NS, Throttle
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.run_directory import connectable
from kvscope_events.wire.socket_file import answers
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration.model import FOLDER
from kvscope_exporter.targets.exporter import Exporter, Watcher
from kvscope_exporter.targets.target import Target

SCHEME = "ipc://"
SCAN_SECONDS = 0.5
MAX_TARGETS = 256
"""Targets of one folder: an engine of 128 ranks and its schedulers; each takes two threads."""
MAX_ENTRIES = 4096
"""Maximum number of file names read at one look at the folder."""
FORGET_NS = 60_000_000_000
"""Silence after which a target that never introduced itself, and has no socket file, is dropped."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Member:
    target: Target
    heard_ns: int
    """When the socket file was last seen."""
    session: str
    began_ns: int
    """When its session was first seen."""

    def look(self, now_ns: int, *, has_file: bool) -> None:
        source = self.target.source
        if source.session != self.session:
            self.session, self.began_ns = source.session, now_ns
        if source.up or (has_file and self.target.hello is None):
            self.heard_ns = now_ns

    def is_replaced_by(self, others: Sequence["_Member"]) -> bool:
        """Whether the server has restarted since this was last seen, and without it.

        others: members of the same model that are up.
        """
        hello = self.target.hello
        assert hello is not None
        if not all(other.began_ns > self.heard_ns for other in others):
            return False
        present = [found for other in others if (found := other.target.hello) is not None]
        same = (hello.engine, hello.worker)
        return any((new.engine, new.worker) == same or _is_complete(new) for new in present)


def _is_complete(hello: Hello) -> bool:
    """Whether an engine takes requests: by then all its workers have introduced themselves."""
    return hello.worker is None and hello.ready


class SocketFolder(Watcher):
    """Keeps an exporter's targets equal to the sockets of a folder, which may not exist yet."""

    def __init__(
        self,
        endpoint: str,
        exporter: Exporter,
        make: Callable[[str], Target],
        clock: Clock,
    ) -> None:
        """make: a target for the endpoint of one socket. Raises EndpointError."""
        super().__init__("kvscope-folder")
        self.endpoint = endpoint
        self._directory = endpoint.removeprefix(SCHEME).removesuffix(FOLDER)
        # Checks the present directory; each socket is checked again when it appears.
        connectable(f"{SCHEME}{self._directory}/engine-0.sock")
        self._exporter = exporter
        self._make = make
        self._clock = clock
        self._members: dict[str, _Member] = {}
        self._throttle = Throttle(clock.monotonic_ns, HOUR_NS)
        self._has_looked = False

    @property
    def silent(self) -> str | None:
        return self.endpoint if self._has_looked and not self._members else None

    def scan(self) -> None:
        """Look once: add new sockets, remove those that a restart of the server has replaced."""
        present = self._sockets()
        for name in present:
            if self._stopping.is_set():  # each one that does not answer takes a while
                return
            if name not in self._members:
                self._add(name)
        now_ns = self._clock.monotonic_ns()
        for name, member in self._members.items():
            member.look(now_ns, has_file=name in present)
        for name in [name for name in self._members if self._is_over(name, now_ns)]:
            self._exporter.remove(self._members.pop(name).target)
        self._has_looked = True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.scan()
            except Exception as error:
                self._tell(f"cannot be watched now: {error!r}")
            self._stopping.wait(SCAN_SECONDS)

    def _sockets(self) -> list[str]:
        """Names of the sockets, sorted: engine-0 before its workers."""
        names = []
        try:
            with os.scandir(self._directory) as entries:
                for number, entry in enumerate(entries):
                    if number == MAX_ENTRIES:
                        self._tell(f"it has more than {MAX_ENTRIES} files: the others are left out")
                        break
                    if entry.name.endswith(".sock") and stat.S_ISSOCK(
                        entry.stat(follow_symlinks=False).st_mode
                    ):
                        names.append(entry.name)
        except FileNotFoundError:  # the folder, or a file that was there a moment ago
            return sorted(names)
        except OSError as error:
            self._tell(f"cannot be read: {error.strerror}")
        return sorted(names)

    def _is_over(self, name: str, now_ns: int) -> bool:
        member = self._members[name]
        target = member.target
        if target.source.up:
            return False
        if target.hello is None:
            return now_ns - member.heard_ns > FORGET_NS
        model_name = target.labels[0]
        live = [
            other
            for other in self._members.values()
            if other.target.source.up and other.target.labels[0] == model_name
        ]
        return member.is_replaced_by(live)

    def _add(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        if not answers(path, SCAN_SECONDS):
            return
        if len(self._members) == MAX_TARGETS and not self._drop_oldest_gone():
            self._tell(f"more than {MAX_TARGETS} sockets: the others are left out")
            return
        try:
            target = self._make(SCHEME + path)
        except EndpointError as error:
            self._tell(str(error))
            return
        now_ns = self._clock.monotonic_ns()
        self._members[name] = _Member(target, now_ns, target.source.session, now_ns)
        self._exporter.add(target)
        logger.info("found %s%s", SCHEME, path)

    def _drop_oldest_gone(self) -> bool:
        """Make room for a socket that answers; False if no target has gone."""
        gone = [
            name
            for name, member in self._members.items()
            if member.target.hello is not None and not member.target.source.up
        ]
        if not gone:
            return False
        oldest = min(gone, key=lambda name: self._members[name].heard_ns)
        self._exporter.remove(self._members.pop(oldest).target)
        return True

    def _tell(self, problem: str) -> None:
        if self._throttle.allow(problem):
            logger.warning("%s: %s", self.endpoint, problem)
