"""Port for listeners that learn which content is findable, with its tokens: each name once.

Events of the bus never carry tokens. The pool and the block tables call this instead, if there is a
listener.
"""

from typing import Protocol

from kvscope_events.events import BlockHash


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

        parent: that of the first block; None: it begins a sequence. tokens: those of these blocks,
        len(hashes) * block_size. salt: that of the first block, if it begins a salted sequence;
        else empty.
        """
        ...

    def removed(self, hashes: list[BlockHash]) -> None:
        """No block has these names any longer."""
        ...

    def cleared(self) -> None:
        """No block has any name any longer."""
        ...

    def end_step(self) -> None:
        """All reports since the last call belong together; also called between steps."""
        ...
