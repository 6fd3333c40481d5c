"""Port for who is told, with the tokens, which content can be found: each name once.

Events of the bus never carry tokens. The pool and the block tables call this instead, and only
where somebody listens.
"""

from typing import TYPE_CHECKING, Protocol

from engine.sequence import Sequence
from kvscope_events.events import BlockHash

if TYPE_CHECKING:
    from engine.block_pool import BlockPool


class ContentListener(Protocol):
    """Called on the engine's thread; must not block or raise. Lists are not changed afterwards."""

    def stored(
        self,
        hashes: list[BlockHash],
        parent: BlockHash | None,
        tokens: list[int],
        block_size: int,
        salt: str,
    ) -> None:
        """Consecutive blocks became findable under names that no block had.

        parent: of the first of them; None: it begins a sequence. tokens: of these blocks,
        len(hashes) * block_size. salt: of the first of them, which begins a salted sequence; else
        empty.
        """
        ...

    def removed(self, hashes: list[BlockHash]) -> None:
        """No block has these names any more."""
        ...

    def cleared(self) -> None:
        """No block has any name any more."""
        ...

    def end_step(self) -> None:
        """All that was told since the last call belongs together; called between steps as well."""
        ...


def tell_stored(
    pool: "BlockPool", sequence: Sequence, names: list[BlockHash], computed: range
) -> None:
    """Tell the runs of new names among the blocks `computed`, before the pool gives them.

    names: of the sequence's blocks, from its first on.
    """
    listener, size = pool.listener, pool.block_size
    assert listener is not None, "nobody listens"
    start = computed.start
    for i in range(computed.start, computed.stop + 1):
        if i < computed.stop and not pool.is_findable(names[i]):
            continue
        if start < i:  # blocks [start, i) are new; i is a further copy, or the end
            listener.stored(
                names[start:i],
                names[start - 1] if start else None,
                sequence.tokens[start * size : i * size],
                size,
                "" if start else sequence.cache_salt,
            )
        start = i + 1
