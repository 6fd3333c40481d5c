"""Tokens that each group of a pool alone would have hit, by vLLM's own look-up."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from kvscope_events.names import suffix_of
from kvscope_events.observers.log import warn

_PER_GROUP = "find_longest_cache_hit_per_group"
_PARAMETERS = ("self", "block_hashes", "max_cache_hit_length")


class GroupHits:
    """Asks vLLM itself how many tokens each group alone would have found; changes nothing there.

    Only at an admission, and then before its first block is handed out: what a group holds is what
    vLLM's own look-up has just seen.
    """

    def __init__(self, manager: Any) -> None:
        self._ask = _method_of(manager.coordinator)
        configuration = getattr(manager, "kv_cache_config", None)
        groups = getattr(configuration, "kv_cache_groups", ())
        self._takes_part = [_takes_part(group) for group in groups]
        sizes = [getattr(group.kv_cache_spec, "block_size", 0) for group in groups]
        fine = getattr(manager.coordinator, "hash_block_size", None)
        self._least_block = min([*sizes, *([fine] if isinstance(fine, int) else ())], default=0)
        self._pool: Any = getattr(manager, "block_pool", None)
        self._probes = _probes_of(manager)
        self._request: Any = None
        self._hit = 0
        self._found: list[int] = []

    def expect(self, request: Any, hit: int) -> None:
        """This request may be admitted now. hit: tokens that all groups have found."""
        self._request, self._hit = (request if self._ask is not None else None), hit
        self._found = []

    @property
    def is_expecting(self) -> bool:
        return self._request is not None

    def ask(self) -> None:
        """Blocks are about to be handed out, so the request is admitted."""
        request, self._request = self._request, None
        if request is None:
            return
        longest = request.num_tokens - 1  # the last token is always computed
        try:
            if self._hit + self._least_block > longest or self._has_none_beyond(request, longest):
                self._found = [self._hit] * len(self._takes_part)
                return
            _, lengths = self._ask(request.block_hashes, longest)
            found = [max(0, min(int(length), longest)) for length in lengths]
            if len(found) != len(self._takes_part):
                raise ValueError(f"{len(found)} hits for {len(self._takes_part)} groups")
        except Exception as error:  # the look-up itself is vLLM's, and has gone well
            self._ask = None
            warn(f"hits of single groups are not reported: {type(error).__name__}: {error}")
            return
        parts = list(zip(found, self._takes_part, strict=True))
        most = max((length for length, takes_part in parts if takes_part), default=0)
        self._found = [length if takes_part else most for length, takes_part in parts]

    def _has_none_beyond(self, request: Any, longest: int) -> bool:
        """Whether no group has a block that a hit beyond that of all groups would need."""
        if self._probes is None:
            return False
        known, digests = self._pool.cached_block_hash_to_block._cache.keys(), request.block_hashes
        for suffix, size, per_block, stride in self._probes:
            begin, end = self._hit // size * per_block, longest // size * per_block
            some = digests[begin + per_block - 1 : end : stride * per_block]
            if not known.isdisjoint([digest + suffix for digest in some]):
                return False
        return True

    def take(self) -> list[int]:
        """Tokens by group of the request that was admitted; empty: not known."""
        found, self._found, self._request = self._found, [], None
        return found


class Probe(NamedTuple):
    """Blocks of a group of which a hit beyond a given one needs at least one.

    A prefix needs the next block, a state any later block, and a window, which needs `stride`
    consecutive ones, at least one of every `stride` from the next one on.
    """

    suffix: bytes  # of the group's hashes
    size: int  # tokens of a block
    per_block: int  # digests of a block
    stride: int  # blocks


def _probes_of(manager: Any) -> list[Probe] | None:
    """None: vLLM looks up in some other way, and has to be asked."""
    coordinator = manager.coordinator
    pool: Any = getattr(manager, "block_pool", None)
    known = getattr(getattr(pool, "cached_block_hash_to_block", None), "_cache", None)
    one_way = not getattr(coordinator, "enable_partial_hash_hits", True)
    if not isinstance(known, dict) or not one_way or getattr(coordinator, "eagle_group_ids", True):
        return None
    probes = []
    for group, one in enumerate(coordinator.single_type_managers):
        kind, size, spec = type(one).__name__, one.block_size, one.kv_cache_spec
        if not _takes_part(manager.kv_cache_config.kv_cache_groups[group]):
            continue
        if kind not in _STRIDES or size % pool.hash_block_size:
            return None
        stride = _STRIDES[kind](spec)
        probes.append(Probe(suffix_of(group), size, size // pool.hash_block_size, stride))
    return probes


_STRIDES: dict[str, Callable[[Any], int]] = {
    "FullAttentionManager": lambda spec: 1 << 40,  # only the next one
    "SlidingWindowManager": lambda spec: max(1, -(-(spec.sliding_window - 1) // spec.block_size)),
    "MambaManager": lambda spec: 1,
}
"""By vLLM's class for the blocks of a group."""


def _method_of(coordinator: Any) -> Any:
    """vLLM's look-up of each group by itself; None where it has none that we know."""
    method = getattr(coordinator, _PER_GROUP, None)
    if method is None or not inspect.ismethod(method):
        return None
    return method if tuple(inspect.signature(method.__func__).parameters) == _PARAMETERS else None


def _takes_part(group: Any) -> bool:
    """Whether blocks of the group can hit; scratch memory cannot, and so refuses nothing."""
    return bool(getattr(group.kv_cache_spec, "prefix_cacheable", True))
