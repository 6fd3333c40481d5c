"""Text to tokens and back for one model; safe to use from several threads.

An answer's text comes as its tokens do: never half a character, and O(1) amortised per token.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer as BackendTokenizer
from transformers import TokenizersBackend

from kvscope_engine.model.chat_template import ChatTemplate, ChatTemplateError


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


class Tokenizer:
    """The part of a tokenizer that the engine needs.

    eos_token_ids: tokens that end a sequence, the tokenizer's and the generation config's.
    """

    def __init__(self, tokenizer: TokenizersBackend, eos_token_ids: frozenset[int]) -> None:
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()  # limits are up to the scheduler, which reports them
        backend.no_padding()
        self._backend = backend
        self._chat_template = _chat_template(tokenizer)
        own = tokenizer.eos_token_id
        self.eos_token_ids = eos_token_ids | ({own} if isinstance(own, int) else set())
        self._special_ids = frozenset(
            token_id
            for token_id, token in backend.get_added_tokens_decoder().items()
            if token.special
        )
        self._byte_vocabulary: ByteVocabulary | None = None
        if _is_byte_level(backend.decoder):
            self._byte_vocabulary = ByteVocabulary(backend, self._special_ids)

    def encode(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """A prompt's token ids, with the special tokens that the model expects around it.

        special_tokens: False for a chat template's output, which has them already.
        """
        # A batch of one: `encode` itself holds the interpreter's lock, a second per megabyte.
        (encoding,) = self._backend.encode_batch([text], add_special_tokens=special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def count(self, text: str) -> int:
        """Tokens of a text without special tokens around it."""
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return len(encoding)

    @property
    def chat_template(self) -> ChatTemplate:
        """Raises ChatTemplateError."""
        if self._chat_template is None:
            raise ChatTemplateError(
                "this model has no chat template; send a plain prompt to /v1/completions"
            )
        return self._chat_template

    def close(self) -> None:
        """End the processes that render conversations."""
        if self._chat_template is not None:
            self._chat_template.close()

    def check_chat_template(self) -> None:
        """Try the chat template, if there is one; errors are logged."""
        if self._chat_template is not None:
            self._chat_template.check()

    def decode(self, token_ids: Sequence[int]) -> str:
        """The whole text, special tokens left out."""
        text: str = self._backend.decode(list(token_ids), skip_special_tokens=True)
        return text

    def decode_token(self, token_id: int) -> str:
        """One token by itself, special ones by name; U+FFFD stands for half a character."""
        text: str = self._backend.decode([token_id], skip_special_tokens=False)
        return text

    def detokenizer(self) -> Detokenizer:
        """A new detokenizer for one sequence."""
        if self._byte_vocabulary is not None:
            return ByteDetokenizer(self._byte_vocabulary)
        return WindowDetokenizer(self._backend, self._special_ids)


def _chat_template(tokenizer: TokenizersBackend) -> ChatTemplate | None:
    source: Any = tokenizer.chat_template
    if isinstance(source, dict):  # several by name; the others are for tools and documents
        source = source.get("default")
    if not isinstance(source, str):
        return None
    variables = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return ChatTemplate(source, variables)


def _is_byte_level(decoder: object) -> bool:
    """Whether tokens are bytes written in the byte alphabet, and decoded all together."""
    state = getattr(decoder, "__getstate__", bytes)()
    return bool(state) and json.loads(state).get("type") == "ByteLevel"
