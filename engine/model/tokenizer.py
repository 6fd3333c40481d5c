"""Text to tokens and back for one model; safe to use from several threads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from transformers import TokenizersBackend

from engine.model.detokenizer import (
    ByteDetokenizer,
    ByteVocabulary,
    Detokenizer,
    WindowDetokenizer,
)


class ChatTemplateError(ValueError):
    """The model's chat template refused the messages."""


class NoChatTemplateError(ChatTemplateError):
    """The model has no chat template."""

    def __init__(self) -> None:
        super().__init__("this model has no chat template; send a plain prompt to /v1/completions")


class Tokenizer:
    """What the engine needs of a tokenizer.

    eos_token_ids: tokens that end a sequence, the tokenizer's and the generation config's.
    """

    def __init__(self, tokenizer: TokenizersBackend, eos_token_ids: frozenset[int]) -> None:
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()  # limits are the scheduler's business, and it reports them
        backend.no_padding()
        self._tokenizer: Any = tokenizer  # its signatures are narrower than what it takes
        self._backend = backend
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

    @property
    def has_chat_template(self) -> bool:
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> list[int]:
        """A plain prompt's token ids, with the special tokens that the model expects around it."""
        return self._encode(text, add_special_tokens=True)

    def apply_chat_template(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """The conversation as a prompt that the assistant continues.

        Raises NoChatTemplateError, or ChatTemplateError if the template refuses the messages.
        """
        if not self.has_chat_template:
            raise NoChatTemplateError
        try:
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"the chat template refused the messages: {error}") from error
        assert isinstance(text, str)
        # The template has written the special tokens already.
        return self._encode(text, add_special_tokens=False)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        # A batch of one: `encode` itself holds the interpreter's lock, a second per megabyte.
        (encoding,) = self._backend.encode_batch([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

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


def _is_byte_level(decoder: object) -> bool:
    """Whether tokens are bytes written in the byte alphabet, and decoded all together."""
    state = getattr(decoder, "__getstate__", bytes)()
    return bool(state) and json.loads(state).get("type") == "ByteLevel"
