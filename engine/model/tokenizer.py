"""Text to tokens and back for one model; safe to use from several threads."""

import json
from collections.abc import Sequence
from typing import Any

from transformers import TokenizersBackend

from engine.model.chat_template import ChatTemplate, NoChatTemplateError
from engine.model.detokenizer import (
    ByteDetokenizer,
    ByteVocabulary,
    Detokenizer,
    WindowDetokenizer,
)


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
        """Raises NoChatTemplateError."""
        if self._chat_template is None:
            raise NoChatTemplateError
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
