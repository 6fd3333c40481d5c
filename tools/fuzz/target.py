"""A fuzz target: a parser, the errors it may raise, and how its inputs are read and written."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")

Parse = Callable[[bytes], bool]
"""Whether the input was accepted; False: refused as declared. Whatever it raises is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Reads an input as values, and writes them as an input."""

    decode: Callable[[bytes], object]
    encode: Callable[[object], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser of what others send or write."""

    name: str
    """Also that of its folder in the corpus."""
    opened: Callable[[], AbstractContextManager[Parse]]
    codec: Codec | None = None
    """None: its inputs are only changed as bytes."""
    tokens: Sequence[bytes] = ()
    """Words of its format."""

    def corpus(self) -> dict[str, bytes]:
        """The kept inputs by name, the findings of the past among them."""
        return {path.name: path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())}
