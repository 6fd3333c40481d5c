"""The content of the replicas' prefix caches, from their streams of KV events.

A replica whose events were lost counts as empty from then on: what it stores later is known again.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import cache

from deploy.ray.engine_process import Addresses
from exporter.clock import Clock
from exporter.sources.kv_events import KvEventsSource
from kvscope_events.events import BlockHash, EngineEvent, NamesCleared, NamesRemoved, NamesStored

WAIT_SECONDS = 1.0
"""The longest that a follower takes to notice its end."""


class Follower:
    """One replica's cache. A thread of its own follows the stream until `stop`."""

    def __init__(self, addresses: Addresses) -> None:
        """Raises EndpointError."""
        self.addresses = addresses
        self._names: set[BlockHash] = set()
        self._session = ""
        self._stopping = False
        self._source = KvEventsSource(
            addresses["kv_events"],
            replay=addresses["replay"],
            server="kvscope",
            engine="0",
            clock=Clock(),
        )
        self._thread = threading.Thread(target=self._run, name="kvscope-ray-follower", daemon=True)
        self._thread.start()

    def held(self, names: Sequence[BlockHash]) -> int:
        """Leading names of these that the cache has."""
        known = self._names
        for count, name in enumerate(names):
            if name not in known:
                return count
        return len(names)

    def stop(self) -> None:
        self._stopping = True
        self._source.wake()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._source.wait(WAIT_SECONDS)
                while not self._stopping and (taken := self._source.take()) is not None:
                    batch, lost = taken
                    if lost or self._source.session != self._session:
                        self._session = self._source.session
                        self._names.clear()
                    for event in batch.events:
                        self._apply(event)
        finally:
            self._source.close()

    def _apply(self, event: EngineEvent) -> None:
        match event:
            case NamesStored(tier="device"):
                self._names.update(event.names)
            case NamesRemoved(tier="device"):
                self._names.difference_update(event.names)
            case NamesCleared(tier="device"):
                self._names.clear()
            case _:  # other tiers are no business of a router
                pass


class Caches:
    """The followers of one deployment's replicas, by the replicas' ids."""

    def __init__(self) -> None:
        self._followers: dict[str, Follower] = {}

    def follow(self, replicas: Mapping[str, Addresses]) -> None:
        """These replicas, and no others. Called from one thread."""
        followers = dict(self._followers)
        for gone in followers.keys() - replicas.keys():
            followers.pop(gone).stop()
        for replica in replicas.keys() - followers.keys():
            followers[replica] = Follower(replicas[replica])
        self._followers = followers  # replaced at once, for readers on other threads

    def held(self, replica: str, names: Sequence[BlockHash]) -> int:
        """Leading names that the replica has; 0 for one that is not followed."""
        follower = self._followers.get(replica)
        return 0 if follower is None else follower.held(names)

    @property
    def addresses(self) -> dict[str, Addresses]:
        """By replica."""
        return {replica: follower.addresses for replica, follower in self._followers.items()}


@cache
def caches_of(application: str, deployment: str) -> Caches:
    """The one of this process: Serve makes the router, which shares it with the ingress."""
    return Caches()
