"""Moves whole blocks of the KV tensors for the block tables."""

from collections.abc import Sequence

from engine.model.kv_cache import KVCache


class CacheMover:
    """A `BlockCopier` over the tensors of one engine.

    On CUDA the copies are queued on the stream that the steps run on, so a step waits for them.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=True):
            self._cache.copy(source, target)
