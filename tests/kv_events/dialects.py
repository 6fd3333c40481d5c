"""Encoders of every dialect of KV events, written from the formats and not from our decoder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

encode = msgspec.msgpack.encode


@dataclass(frozen=True)
class Stored:
    """Blocks by number, consecutive children of `parent`."""

    blocks: tuple[int, ...]
    parent: int | None = None
    medium: str = "GPU"
    group: int = 0
    block_size: int = 2


@dataclass(frozen=True)
class Removed:
    """Blocks by number."""

    blocks: tuple[int, ...]
    medium: str = "GPU"
    group: int = 0


@dataclass(frozen=True)
class Cleared:
    """The device's cache was reset."""


Said = Stored | Removed | Cleared


def one(block: int, medium: str = "GPU") -> Stored:
    """A block of its own."""
    return Stored((block,), medium=medium)


def unsigned(block: int) -> int:
    """A hash that needs all of its 64 bits, half of them beyond a signed one."""
    return (block + 1) * 0x9E37_79B9_7F4A_7C15 & 0xFFFF_FFFF_FFFF_FFFF


def signed(block: int) -> int:
    hash = unsigned(block)
    return hash - (1 << 64) if hash >> 63 else hash


def digest(block: int) -> bytes:
    """A long hash whose low end is the short one, as vLLM's are."""
    return bytes(24) + unsigned(block).to_bytes(8, "big")


Hash = Callable[[int], int | bytes]


@dataclass(frozen=True)
class Dialect:
    """Encoding of one range of versions, with media and groups if it has them."""

    name: str
    write: Callable[[Said, Hash], Any]
    hash: Hash
    has_media: bool = True
    has_groups: bool = True
    rank: bool = True

    def message(self, events: Iterable[Said], *, time: float = 1.5, rank: int = 0) -> bytes:
        """One payload."""
        envelope: list[Any] = [time, [self.write(event, self.hash) for event in events]]
        if self.rank:
            envelope.append(rank)
        return encode(envelope)


def _tokens(event: Stored) -> list[int]:
    return list(range(event.block_size * len(event.blocks)))


def _hashes(blocks: Iterable[int], hash: Hash) -> list[int | bytes]:
    return [hash(block) for block in blocks]


def _parent(event: Stored, hash: Hash) -> int | bytes | None:
    return None if event.parent is None else hash(event.parent)


def _arrays(stored: int, removed: int, metadata: bool = False) -> Callable[[Said, Hash], Any]:
    """Arrays cut to these lengths, tag included."""

    def write(event: Said, hash: Hash) -> list[Any]:
        if isinstance(event, Stored):
            whole = [
                *("BlockStored", _hashes(event.blocks, hash), _parent(event, hash)),
                *(_tokens(event), event.block_size, None, event.medium),
                *({"cache_salt": "s"} if metadata else None, None, event.group),
                *("full_attention", None),
            ]
            return whole[:stored]
        if isinstance(event, Removed):
            whole = ["BlockRemoved", _hashes(event.blocks, hash), event.medium, event.group]
            return whole[:removed]
        return ["AllBlocksCleared"]

    return write


def _maps(*, media: bool = True, groups: bool = True) -> Callable[[Said, Hash], Any]:
    """Maps without the fields that have their default, but with others that we do not know."""

    def write(event: Said, hash: Hash) -> dict[str, Any]:
        if isinstance(event, Cleared):
            return {"type": "AllBlocksCleared"}
        fields: dict[str, Any] = {}
        if media:
            fields["medium"] = event.medium
        if groups:
            fields["group_idx"] = event.group
        hashes = _hashes(event.blocks, hash)
        if isinstance(event, Removed):
            return {"type": "BlockRemoved", "block_hashes": hashes, **fields}
        return {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": _parent(event, hash),
            "token_ids": _tokens(event),
            "block_size": event.block_size,
            "lora_id": None,
            **fields,
            "extra_keys": [None, ["salt", {"deep": [[], {}]}]],
            "of_tomorrow": {"1": [2, None, 3.5]},
        }

    return write


DIALECTS = (
    Dialect("vllm-0.9", _arrays(6, 2), signed, has_media=False, has_groups=False, rank=False),
    Dialect("vllm-0.10.2", _arrays(7, 3), unsigned, has_groups=False),
    Dialect("vllm-0.17", _arrays(9, 3), unsigned, has_groups=False),
    Dialect("vllm-0.23", _arrays(12, 4), unsigned),
    Dialect("vllm-0.23-bytes", _arrays(12, 4), digest),
    Dialect("vllm-0.32", _maps(), unsigned),
    Dialect("vllm-0.32-bytes", _maps(), digest),
    Dialect("sglang-0.5.3", _arrays(6, 2), signed, has_media=False, has_groups=False),
    Dialect("sglang-0.5.17", _arrays(7, 3), signed, has_groups=False),
    Dialect("sglang-0.5.19", _arrays(8, 3, metadata=True), signed, has_groups=False),
    Dialect("sglang-0.5.23", _maps(groups=False), signed, has_groups=False),
    Dialect("dynamo-1.6", _maps(media=False), unsigned, has_media=False),
)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
