"""Names of pages: those that SGLang reports as stored and removed, and those of a lookup.

SGLang names a page by the first eight bytes of a SHA-256 chain: the parent's digest, if there is
one, then each token in four bytes. A salted request begins with a digest of its salt. Its events
carry token ids, which never leave the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from kvscope_events.events import EngineEvent, NamesCleared, NamesRemoved, NamesStored
from kvscope_events.observers.sglang import recorder
from kvscope_events.vocabulary import Tier

NAME_BYTES = 8
_TIERS: dict[str | None, Tier] = {
    None: "device",
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "CPU_TIER1": "host",
    "DISK": "disk",
    "EXTERNAL": "remote",
}
_SALTED = b"sglang-cache-salt-v1\0"
_UNSALTED = ("0.5.17", "0.5.18", "0.5.19")


class Content:
    """Drains the tree's own events; its publisher, if it has one, still gets all of them."""

    def __init__(self, scheduler: Any, page: int, *, publishes: bool) -> None:
        """publishes: SGLang has a publisher; otherwise the tree records for us alone."""
        self.page = page
        self._scheduler = scheduler
        self._tree = scheduler.tree_cache
        self._take: Callable[[], list[Any]] = self._tree.take_events
        self._publishes = publishes
        self._records = True
        self._for_publisher: list[Any] = []
        self._stand_in: Any = None

    @property
    def can_be_stopped(self) -> bool:
        """Whether nothing of ours has to stay in SGLang for the sake of what the tree records."""
        return self._publishes or recorder.can_be_stopped(self._tree)

    def attach(self, into: list[EngineEvent], fail: Callable[[BaseException, str], None]) -> None:
        """Stand for the tree's `take_events`; fail: must not raise."""

        def take_events() -> list[Any]:
            try:
                self.drain(into)
            except Exception as error:
                fail(error, "take_events")
            return self._owed()

        self._remove_stand_in()
        self._take = self._tree.take_events
        if not self._records:
            self._records = True
            recorder.resume(self._tree)
        self._put(take_events)

    def detach(self) -> None:
        """Leave the tree alone; may be repeated."""
        try:
            self._give_back()
        finally:
            if self._records and not self._publishes:
                self._records = False
                recorder.stop(self._scheduler)

    def drain(self, into: list[EngineEvent]) -> None:
        """Append what the tree has stored and removed since."""
        events = self._take()
        if self._publishes:
            self._for_publisher += events
        for event in events:
            kind = type(event).__name__
            tier = _TIERS.get(getattr(event, "medium", None), "other")
            if kind == "BlockStored":
                names = _names(event.block_hashes)
                parent = event.parent_block_hash
                above = None if parent is None else _name(parent)
                into.append(NamesStored(tier, names, above, self.page))
            elif kind == "BlockRemoved":
                into.append(NamesRemoved(tier, _names(event.block_hashes)))
            else:
                into.append(NamesCleared(tier))

    def _give_back(self) -> None:
        """Put the tree's own method back, at once or after a call that gets what we have taken."""
        if not self._remove_stand_in() or not self._for_publisher:
            return
        take = self._take

        def take_events() -> list[Any]:
            self._remove_stand_in()
            return [*self._owed(), *take()]

        self._put(take_events)

    def _owed(self) -> list[Any]:
        """The events that the publisher would have got from the tree."""
        events, self._for_publisher = self._for_publisher, []
        return events

    def _put(self, stand_in: Callable[[], list[Any]]) -> None:
        self._stand_in = self._tree.take_events = stand_in

    def _remove_stand_in(self) -> bool:
        """Whether ours was still there."""
        there = vars(self._tree).get("take_events")
        if there is None or there is not self._stand_in:
            return False
        del self._tree.take_events
        return True


def can_name(request: Any, version: str) -> bool:
    """Whether a request's names depend on its tokens and its salt alone; before 0.5.20 they do not
    depend on the salt."""
    if getattr(request, "extra_key", None) or getattr(request, "lora_id", None):
        return False
    return not getattr(request, "cache_salt", None) or version not in _UNSALTED


def lookup_names(request: Any, page: int) -> list[bytes]:
    """Names of the pages that a lookup may find: all full ones, but the last token is computed."""
    import numpy as np  # SGLang has it

    # The prompt is an array of the standard library: its buffer is copied, not its items.
    parts = (request.origin_input_ids, request.output_ids)
    tokens = np.concatenate([np.asarray(part, dtype="<u4") for part in parts])
    raw, size = tokens.tobytes(), tokens.itemsize * page
    salt = getattr(request, "cache_salt", None)
    digest = sha256(_SALTED + salt.encode()).digest() if salt else b""
    names = []
    for begin in range(0, (len(tokens) - 1) // page * size, size):
        digest = sha256(digest + raw[begin : begin + size]).digest()
        names.append(digest[:NAME_BYTES])
    return names


def _names(hashes: Iterable[int | bytes]) -> list[bytes]:
    return [_name(block_hash) for block_hash in hashes]


def _name(block_hash: int | bytes) -> bytes:
    if isinstance(block_hash, int):
        return block_hash.to_bytes(NAME_BYTES, "big", signed=True)
    return bytes(block_hash[:NAME_BYTES])
