"""Port for who is told, with the tokens, which content can be found: each name once.

Events of the bus never carry tokens. The pool and the block tables call this instead, and only
where somebody listens.
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
        """All reports since the last call belong together; called between steps as well."""
        ...
