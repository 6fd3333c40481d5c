"""Prompts that are right but enormous: the text, the token ids, the number of messages."""

from tools.chaos.target import Target

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_MIB = 1 << 20
_PAUSE_SECONDS = 0.05


def _repeat(target: Target, path: str, body: bytes) -> None:
    while not target.over:
        target.post(path, body)
        target.wait(_PAUSE_SECONDS)


def empty_messages(target: Target) -> None:
    """A quarter of a million messages without content."""
    message = b'{"role":"user","content":""}'
    _repeat(target, _CHAT, b'{"messages":[' + (message + b",") * 250_000 + message + b"]}")


def long_roles(target: Target) -> None:
    """Messages whose text is in their roles."""
    message = b'{"role":"' + b"u" * 64 + b'","content":""}'
    _repeat(target, _CHAT, b'{"messages":[' + (message + b",") * 80_000 + message + b"]}")


def long_text(target: Target) -> None:
    """Megabytes of words."""
    _repeat(target, _COMPLETIONS, b'{"prompt":"' + b"a b" * (2 * _MIB) + b'"}')


def long_word(target: Target) -> None:
    """Megabytes without a space."""
    _repeat(target, _COMPLETIONS, b'{"prompt":"' + b"a" * (7 * _MIB) + b'"}')


def many_token_ids(target: Target) -> None:
    """Millions of token ids."""
    _repeat(target, _COMPLETIONS, b'{"prompt":[1' + b",1" * (3 * _MIB) + b"]}")
