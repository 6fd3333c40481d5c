"""What is fuzzed: a parser, what it may raise, and how its inputs are made."""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tools.fuzz import octets, tree

CORPUS = Path(__file__).with_name("corpus")

Parse = Callable[[bytes], bool]
"""Whether the input was taken; False: refused as declared. Whatever it raises is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How an input is read as values, and written again."""

    decode: Callable[[bytes], object]
    encode: Callable[[object], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser of what others send or write."""

    name: str
    """Also that of its folder in the corpus."""
    opened: Callable[[], AbstractContextManager[Parse]]
    codec: Codec | None = None
    """None: its inputs are only mutated as bytes."""
    tokens: Sequence[bytes] = ()
    """Words of its format."""

    @property
    def folder(self) -> Path:
        """Of the kept inputs."""
        return CORPUS / self.name

    def corpus(self) -> list[bytes]:
        """The kept inputs, in the order of their names."""
        return [path.read_bytes() for path in sorted(self.folder.iterdir())]


class Inputs:
    """Inputs without end, the same for the same seed: the corpus, then mutations of it."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._rng = random.Random(f"{target.name} {seed}")
        self._kept = target.corpus()
        self._trees = [value for value in map(self._decoded, self._kept) if value is not None]

    def __iter__(self) -> "Inputs":
        return self

    def __next__(self) -> bytes:
        rng = self._rng
        codec = self._target.codec
        if codec is not None and self._trees and rng.random() < 0.6:
            value = tree.mutated(rng.choice(self._trees), rng, rng.choice(self._trees))
            try:
                made = codec.encode(value)
            except (ValueError, TypeError, OverflowError, RecursionError):
                return next(self)  # a value that the format does not have
            if rng.random() < 0.8:
                return made[: octets.MAX_BYTES]
        else:
            made = rng.choice(self._kept)
        return octets.mutated(made, rng, rng.choice(self._kept), self._target.tokens)

    def kept(self) -> list[bytes]:
        return self._kept

    def _decoded(self, content: bytes) -> object:
        """None: the kept input is not well-formed, or nested too deeply."""
        if self._target.codec is None:
            return None
        try:
            value = self._target.codec.decode(content)
        except Exception:  # it is kept because it is wrong, in whatever way
            return None
        return None if tree.is_deep(value) else value
