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
from kvscope_events.observers.log import warn
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

    def __init__(self, tree: Any, page: int, publishes: bool) -> None:
        self.page = page
        self.num_names = 0
        """Names on the device now."""
        self._take: Callable[[], list[Any]] = tree.take_events
        self._publishes = publishes
        self._for_publisher: list[Any] = []

    def for_publisher(self) -> list[Any]:
        """The events that the publisher would have got from the tree."""
        events, self._for_publisher = self._for_publisher, []
        return events

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
                self.num_names += len(names) * (tier == "device")
            elif kind == "BlockRemoved":
                names = _names(event.block_hashes)
                into.append(NamesRemoved(tier, names))
                self.num_names -= len(names) * (tier == "device")
            else:
                into.append(NamesCleared(tier))
                if tier == "device":
                    self.num_names = 0


def discard_names(scheduler: Any) -> None:
    """Drop the names that the tree goes on to report for an observer that has ended: they would
    grow without a limit. A tree in Rust cannot be switched back."""
    process, tree = scheduler.process_batch_result, scheduler.tree_cache

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = process(*args, **kwargs)
        try:
            tree.take_events()
        except Exception as error:
            scheduler.process_batch_result = process
            warn(f"SGLang's KV events are no longer discarded: {error!r}")
        return result

    scheduler.process_batch_result = wrapper


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
