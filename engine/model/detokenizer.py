"""Tokens to text as they come: never half a character, and O(1) amortised per token."""

import codecs
from collections.abc import Iterable, Iterator
from typing import Protocol

from tokenizers import Tokenizer as BackendTokenizer


def _characters() -> Iterator[str]:
    substitutes = (chr(code) for code in range(0x100, 0x200))
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        yield chr(byte) if printable else next(substitutes)


BYTE_TO_CHAR: tuple[str, ...] = tuple(_characters())
CHAR_TO_BYTE: dict[str, int] = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_PENDING = 16
"""Tokens that may wait for the rest of a character; a character has at most 4 bytes."""


class Detokenizer(Protocol):
    """The text of one growing sequence, in pieces. Special tokens have no text."""

    def add(self, token_ids: Iterable[int]) -> str:
        """Text that these tokens completed; may be empty."""

    def finish(self) -> str:
        """Text of an unfinished character at the end (U+FFFD), or nothing. Call once, last."""


class ByteVocabulary:
    """Bytes of each token of a byte-level tokenizer, looked up once and kept."""

    def __init__(self, backend: BackendTokenizer, special_ids: frozenset[int]) -> None:
        self._backend = backend
        self._bytes: dict[int, bytes] = dict.fromkeys(special_ids, b"")

    def __getitem__(self, token_id: int) -> bytes:
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._look_up(token_id)
        return found

    def _look_up(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id)
        if token is None:  # logits can have more columns than the vocabulary
            return b""
        try:
            return bytes(CHAR_TO_BYTE[char] for char in token)
        except KeyError:  # an added token is plain text
            return token.encode()


class ByteDetokenizer:
    """Detokenizer of byte-level vocabularies; exact: the pieces join to the full decoding."""

    def __init__(self, vocabulary: ByteVocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_ids: Iterable[int]) -> str:
        vocabulary = self._vocabulary
        return self._decoder.decode(b"".join([vocabulary[token_id] for token_id in token_ids]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """Detokenizer of other vocabularies: decodes a short window twice and emits the difference.

    The window starts at the tokens emitted last, because a decoder may join a token to the one
    before it (spaces above all). Text that ends in U+FFFD waits, but not forever: after 16 tokens
    without a valid character it is emitted as it is.
    """

    def __init__(self, backend: BackendTokenizer, special_ids: frozenset[int]) -> None:
        self._backend = backend
        self._special_ids = special_ids
        self._emitted: list[int] = []
        self._pending: list[int] = []

    def add(self, token_ids: Iterable[int]) -> str:
        pieces: list[str] = []
        for token_id in token_ids:
            if token_id in self._special_ids:
                continue
            self._pending.append(token_id)
            text = self._new_text()
            if not text or (text.endswith(_REPLACEMENT) and len(self._pending) < _MAX_PENDING):
                continue
            pieces.append(text)
            self._emitted, self._pending = self._pending, []
        return "".join(pieces)

    def finish(self) -> str:
        return self._new_text()

    def _new_text(self) -> str:
        before = self._backend.decode(self._emitted, skip_special_tokens=False)
        after = self._backend.decode(self._emitted + self._pending, skip_special_tokens=False)
        return after[len(before) :]
