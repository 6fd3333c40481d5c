"""Text of a given length in tokens, for servers whose tokenizer is unknown to the client."""

import random
from dataclasses import dataclass

_WORDS = (
    "the",
    "cache",
    "keeps",
    "every",
    "key",
    "and",
    "value",
    "until",
    "another",
    "request",
    "needs",
    "room",
    "so",
    "memory",
    "pressure",
    "shows",
    "first",
    "in",
    "latency",
    "while",
    "users",
    "wait",
    "for",
    "answers",
    "about",
    "orders",
    "invoices",
    "reports",
    "errors",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCost:
    """The server's number of tokens for a text. The default never underestimates."""

    bytes_per_token: float = 1.0
    """1 is the worst case: a byte-level model."""
    message_overhead: int = 16
    """Tokens that the chat template adds around one message."""

    def tokens(self, text: str) -> int:
        return round(len(text.encode()) / self.bytes_per_token) + self.message_overhead


def words(rng: random.Random, num_bytes: int) -> str:
    """ASCII, `num_bytes` long (at least 1): common words, so that every tokenizer knows them."""
    text = ""
    while len(text) < num_bytes:
        text += rng.choice(_WORDS) + " "
    return text[:num_bytes].rstrip() or "a"
