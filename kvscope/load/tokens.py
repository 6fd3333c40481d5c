"""Token ids from names: deterministic, so that equal names share a prefix and others never do."""

import hashlib
import struct
from dataclasses import dataclass

from kvscope.traces import TraceRequest

_BYTES_PER_DRAW = 4


def named_tokens(name: str, count: int, vocab_size: int) -> list[int]:
    """`count` ids in [0, vocab_size) that depend only on `name`; a longer draw extends a shorter.

    The same on every machine and Python version: SHAKE-128 of the name, 32 bits an id.
    """
    digest = hashlib.shake_128(name.encode()).digest(count * _BYTES_PER_DRAW)
    return [draw % vocab_size for draw in struct.unpack(f"<{count}I", digest)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTokens:
    """Turns a trace's block ids into prompts that share prefixes exactly as the ids do."""

    block_size: int = 512
    """Tokens of a full block in the trace."""
    length_scale: float = 1.0
    """Shrinks every length of the trace: 1/16 makes blocks of 32 tokens of 512."""
    vocab_size: int = 256
    """Ids are below it; 256 is within every vocabulary, even of byte-level models."""
    seed: int = 0

    @property
    def block_tokens(self) -> int:
        """Tokens of a full block."""
        return self.scaled(self.block_size)

    def scaled(self, length: int) -> int:
        return max(1, round(length * self.length_scale))

    def prompt(self, request: TraceRequest) -> list[int]:
        """Full blocks of `block_tokens`; a partial last block scales and stays partial.

        Raises ValueError for an id that needs more tokens than a block has.
        """
        tokens: list[int] = []
        for block_id in request.hash_ids:
            tokens += self.block(block_id)
        partial = request.input_length % self.block_size
        if partial:
            kept = max(1, min(self.block_tokens - 1, self.scaled(partial)))
            del tokens[len(tokens) - self.block_tokens + kept :]
        return tokens

    def block(self, block_id: int) -> list[int]:
        """The id in base `vocab_size`, lowest digit first, then filling drawn from id and seed.

        Lowest first, because siblings tend to have neighbouring ids: they differ at once.
        """
        digits = self._digits(block_id)
        if len(digits) > self.block_tokens:
            raise ValueError(
                f"block id {block_id} needs {len(digits)} tokens of a vocabulary of "
                f"{self.vocab_size}, a block has {self.block_tokens}: "
                "raise the length scale or the vocabulary size"
            )
        filling = self.block_tokens - len(digits)
        return digits + named_tokens(f"{self.seed}/block/{block_id}", filling, self.vocab_size)

    def _digits(self, block_id: int) -> list[int]:
        digits: list[int] = []
        while block_id or not digits:
            block_id, digit = divmod(block_id, self.vocab_size)
            digits.append(digit)
        return digits
