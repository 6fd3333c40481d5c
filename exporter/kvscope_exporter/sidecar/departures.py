"""Logs when a watched server, or one of its engines, ends, falls silent or comes back; once each.

Looks at the sources' state; only for a silent engine does it try whether it accepts connections.
"""

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kvscope_events.printable import printable
from kvscope_events.throttle import Throttle
from kvscope_events.wire.socket_file import answers
from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.clock import BackgroundLoop, Clock, Turns
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target

LOOK_SECONDS = 1.0
_PROBE_SECONDS = 0.5
_KEPT = (
    "its counters keep their last values and its other figures are absent until it is back; after "
    "a planned end, take it off the page with `kvscope admin forget`"
)

logger = logging.getLogger("kvscope")

Hearing = Literal["new", "up", "silent", "gone"]


@dataclass(slots=True)
class _TargetState:
    """State of one target at the last look."""

    hearing: Hearing = "new"
    since_ns: int = 0
    session: str = ""


@dataclass(slots=True)
class _KnownServer:
    """State of one server at the last look."""

    state: ServerState | None = None
    since_ns: int = 0


class Departures:
    """A thread that looks at all servers every second, until `stop`."""

    def __init__(self, servers: Callable[[], Mapping[str, Exporter]], clock: Clock) -> None:
        self._servers = servers
        self._now_ns = clock.monotonic_ns
        self._known: dict[Exporter, _KnownServer] = {}
        self._heard: dict[Target, _TargetState] = {}
        self._throttle = Throttle(clock.monotonic_ns)
        self._turns = Turns(self._now_ns)
        self._loop = BackgroundLoop("kvscope-departures", LOOK_SECONDS, self._look_in_turn)

    def start(self) -> None:
        """Begin to look; may be called once."""
        self._loop.start()

    def stop(self) -> None:
        """End the thread."""
        self._loop.stop()

    def look(self) -> None:
        """Log what has changed since the last look."""
        servers = self._servers()
        targets = {target for exporter in servers.values() for target in exporter.targets}
        self._heard = {t: heard for t, heard in self._heard.items() if t in targets}
        present = set(servers.values())
        self._known = {e: known for e, known in self._known.items() if e in present}
        for name, exporter in servers.items():
            for target in exporter.targets:
                if target.source.kind in ("wire", "kv_events"):
                    self._look_at_target(name, target)
            self._look_at_server(name, exporter)

    def _look_in_turn(self) -> None:
        if not self._turns.was_held_up():
            self.look()

    def _look_at_target(self, name: str, target: Target) -> None:
        heard = self._heard.setdefault(target, _TargetState())
        now_ns, before = self._now_ns(), heard.hearing
        if target.source.up:
            if before in ("silent", "gone"):
                is_other = target.source.session != heard.session or target.source.superseded
                again = "was started again" if is_other else "is back"
                logger.info("%s: %s %s", name, _who(target), again)
            elif before == "up":
                return
            heard.session = target.source.session
            self._set(heard, "up", now_ns)
        elif before == "up":
            lasted = _duration(now_ns - heard.since_ns)
            heard.session = target.source.session
            if target.source.kind == "wire" and _accepts(target.source.endpoint):
                self._set(heard, "silent", now_ns)
                logger.warning(
                    "%s: %s has fallen silent after %s: its process still holds the endpoint; %s",
                    *(name, _who(target), lasted, _KEPT),
                )
            else:
                self._set(heard, "gone", now_ns)
                logger.warning("%s: %s has gone after %s; %s", name, _who(target), lasted, _KEPT)
        elif before == "silent" and not _accepts(target.source.endpoint):
            self._set(heard, "gone", now_ns)
            logger.warning("%s: %s has gone", name, _who(target))

    def _look_at_server(self, name: str, exporter: Exporter) -> None:
        known = self._known.setdefault(exporter, _KnownServer(since_ns=self._now_ns()))
        state, now_ns = exporter.presence.state, self._now_ns()
        if state == known.state:
            return
        before, lasted = known.state, _duration(now_ns - known.since_ns)
        known.state, known.since_ns = state, now_ns
        if state is None or (before is None and state == "expected"):
            return
        if not self._throttle.allow(f"{name} {state}"):
            return
        level = logging.WARNING if state == "gone" else logging.INFO
        after = "" if before is None else f", after {lasted} as {before}"
        logger.log(level, "%s: the server is %s%s", name, state, after)

    @staticmethod
    def _set(heard: _TargetState, hearing: Hearing, now_ns: int) -> None:
        heard.hearing, heard.since_ns = hearing, now_ns


def _who(target: Target) -> str:
    """The target's name, printable whatever the engine calls itself."""
    hello, endpoint = target.hello, target.source.endpoint
    if hello is None:
        return f"what publishes at {endpoint}"
    process = f"engine {hello.engine}"
    if hello.worker is not None:
        process = f"worker {hello.worker} of {process}"
    pid = f"pid {hello.pid}, " if hello.pid else ""
    text = f"{process} of {hello.model_name or 'a model without a name'} ({pid}{endpoint})"
    return printable(text, keep="")


def _duration(nanoseconds: int) -> str:
    """`3 h 12 min`, `2 min 5 s`, `45 s`."""
    seconds = nanoseconds // 1_000_000_000
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def _accepts(endpoint: str) -> bool:
    """Whether a process still accepts connections there."""
    scheme, _, place = endpoint.partition("://")
    if scheme == "ipc":
        return answers(place, _PROBE_SECONDS)
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
