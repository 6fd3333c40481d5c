"""Follows the sidecars of a list that may change, and folds what they answer."""

import threading
from collections.abc import Callable, Mapping

from kvscope_exporter.clock import BackgroundLoop, Clock
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.fleet.member import Member, Read

FOLD_SECONDS = 0.5


class Follower:
    """Sidecars by name. `watch` may be called at any time."""

    def __init__(self, fleet: Fleet, clock: Clock | None = None) -> None:
        self.fleet = fleet
        self._clock = clock or Clock()
        self._members: dict[str, Member] = {}
        self._lock = threading.Lock()
        self._loop = BackgroundLoop("kvscope-fleet", FOLD_SECONDS, self.fold)

    @property
    def members(self) -> list[Member]:
        """By name."""
        members = dict(self._members)  # which may change meanwhile
        return [members[name] for name in sorted(members)]

    def watch(self, wanted: Mapping[str, Callable[[], Read]]) -> tuple[list[str], list[str]]:
        """Follow these from now on; returns the names that came, and those that went.

        wanted: how to read each, called for those that are new. Raises what that raises.
        """
        with self._lock:
            came = [name for name in wanted if name not in self._members]
            new = {name: Member(name, wanted[name](), self.fleet, self._clock) for name in came}
            went = [name for name in self._members if name not in wanted]
            for name in went:
                self._members.pop(name).end()
                self.fleet.forget(name)
            self._members.update(new)
            if self._loop.is_running:
                for member in new.values():
                    member.start()
        return came, went

    def start(self) -> None:
        """Begin to ask and to fold; called once."""
        with self._lock:
            self._loop.start()
            for member in self._members.values():
                member.start()

    def stop(self) -> None:
        """End all threads; those that wait for a sidecar are left to themselves."""
        for member in self.members:
            member.end()
        self._loop.stop()

    def fold(self) -> None:
        """Fold the answers that wait."""
        with self._lock:  # a member that goes meanwhile would be followed for ever
            waiting = [
                (member, answer)
                for member in self._members.values()
                if (answer := member.answer) is not None
            ]
            self.fleet.fold([(member.name, answer) for member, answer in waiting])
            for member, _ in waiting:
                member.folded()
