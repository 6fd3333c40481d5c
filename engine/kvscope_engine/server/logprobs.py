"""Log probabilities as JSON, written as tokens come: names are encoded once, nothing is kept twice.

An answer can have a million of them; each is appended to the bytes of its list.
"""

from collections.abc import Callable
from math import isfinite
from typing import Protocol

import msgspec

from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.step_plan import SampledToken


class LogprobWriter(Protocol):
    """The `logprobs` of one choice, or of one chunk of it."""

    def add(self, token: SampledToken, offset: int) -> None:
        """Append a token; `offset`: where its text begins in the choice, in characters."""

    def parts(self) -> list[bytes]:
        """The JSON value, to be joined."""


class TokenNames:
    """The JSON of each token's text, looked up once and kept: at most one per vocabulary entry."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, bytes] = {}
        self._heads: dict[int, bytes] = {}

    def name(self, token_id: int) -> bytes:
        """`"the"`."""
        found = self._names.get(token_id)
        if found is None:
            text = self._tokenizer.decode_token(token_id)
            found = self._names[token_id] = msgspec.json.encode(text)
        return found

    def head(self, token_id: int) -> bytes:
        """`"token":"the","bytes":[116,104,101],"logprob":`."""
        found = self._heads.get(token_id)
        if found is None:
            text = self._tokenizer.decode_token(token_id)
            named = msgspec.json.encode({"token": text, "bytes": list(text.encode())})
            found = self._heads[token_id] = named[1:-1] + b',"logprob":'
        return found


class ChatLogprobs:
    """`{"content": [{"token", "bytes", "logprob", "top_logprobs": […]}]}`."""

    def __init__(self, names: TokenNames) -> None:
        self._head = names.head
        self._tokens: list[bytes] = []

    def add(self, token: SampledToken, offset: int) -> None:
        head = self._head
        alternatives = b",".join(
            [
                b"{%b%b}" % (head(token_id), _number(logprob))
                for token_id, logprob in token.alternatives or ()
            ]
        )
        self._tokens.append(
            b'{%b%b,"top_logprobs":[%b]}'
            % (head(token.token_id), _number(token.logprob), alternatives)
        )

    def parts(self) -> list[bytes]:
        return [b'{"content":', *_list_of(self._tokens), b"}"]


class CompletionLogprobs:
    """`{"tokens": […], "token_logprobs": […], "top_logprobs": [{…}], "text_offset": […]}`."""

    def __init__(self, names: TokenNames) -> None:
        self._name = names.name
        self._tokens: list[bytes] = []
        self._logprobs: list[bytes] = []
        self._alternatives: list[bytes] = []
        self._offsets: list[bytes] = []

    def add(self, token: SampledToken, offset: int) -> None:
        name = self._name
        self._tokens.append(name(token.token_id))
        self._logprobs.append(_number(token.logprob))
        # Different tokens can have the same text (halves of characters do): the likeliest one
        # stays.
        named = {
            name(token_id): logprob for token_id, logprob in reversed(token.alternatives or ())
        }
        pairs = [b"%b:%b" % (text, _number(logprob)) for text, logprob in named.items()]
        self._alternatives.append(b"{%b}" % b",".join(pairs))
        self._offsets.append(b"%d" % offset)

    def parts(self) -> list[bytes]:
        return [
            b'{"tokens":',
            *_list_of(self._tokens),
            b',"token_logprobs":',
            *_list_of(self._logprobs),
            b',"top_logprobs":',
            *_list_of(self._alternatives),
            b',"text_offset":',
            *_list_of(self._offsets),
            b"}",
        ]


NewWriter = Callable[[], LogprobWriter]
"""Makes the writer of a choice or a chunk."""


def _list_of(values: list[bytes]) -> list[bytes]:
    parts = [b"["]
    for value in values:
        parts += (value, b",")
    if values:
        parts.pop()
    parts.append(b"]")
    return parts


def _number(value: float | None) -> bytes:
    """The number as JSON; null stands for infinity, which JSON lacks."""
    return b"null" if value is None or not isfinite(value) else repr(value).encode()
