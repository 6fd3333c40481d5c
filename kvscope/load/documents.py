"""How a run asks for one small document: the port that whoever starts the run fills.

Completions are streamed by the client itself; lists of models, probes and metrics come this way.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class DocumentError(Exception):
    """Nothing was received that could be read; the message says why, without the URL."""


class Document(NamedTuple):
    """An answer. The body of one that is no success may be cut."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return self.status // 100 == 2


class Documents(Protocol):
    async def fetch(
        self, url: str, *, headers: Mapping[str, str], content: bytes | None, seconds: float
    ) -> Document:
        """GET, or POST of `content`. The whole answer takes at most `seconds`, and its size has a
        bound after unpacking. Raises DocumentError."""
        ...
