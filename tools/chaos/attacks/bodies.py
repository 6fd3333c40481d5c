"""Bodies that cost far more to refuse than to send: errors by the element, nesting, many names."""

from tools.chaos.target import Target

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_MIB = 1 << 20
_PAUSE_SECONDS = 0.05


def _repeat(target: Target, path: str, *bodies: bytes) -> None:
    while True:
        for body in bodies:
            if target.over:
                return
            target.post(path, body)
            target.wait(_PAUSE_SECONDS)


def _list_of(first: bytes, element: bytes, size: int) -> bytes:
    return b"[" + first + (b"," + element) * (size // (len(element) + 1)) + b"]"


def many_errors(target: Target) -> None:
    """A list of prompts in which each element is wrong, of 1 and 7 MB."""
    bodies = [b'{"prompt":' + _list_of(b'"a"', b"1", size) + b"}" for size in (_MIB, 7 * _MIB)]
    _repeat(target, _COMPLETIONS, *bodies)


def many_wrong_parts(target: Target) -> None:
    """A message whose parts are all wrong, and a list of things that are not messages."""
    parts = b'{"messages":[{"role":"user","content":' + _list_of(b"0", b"0", 7 * _MIB) + b"}]}"
    messages = b'{"messages":' + _list_of(b"0", b"0", 7 * _MIB) + b"}"
    _repeat(target, _CHAT, parts, messages)


def many_stop_tokens(target: Target) -> None:
    """Millions of stop tokens, right and wrong ones."""
    head = b'{"prompt":"a","max_tokens":1,"stop_token_ids":'
    _repeat(
        target,
        _COMPLETIONS,
        head + _list_of(b"1", b"1", 7 * _MIB) + b"}",
        head + _list_of(b"-1", b"-1", 7 * _MIB) + b"}",
    )


def many_names(target: Target) -> None:
    """Hundreds of thousands of unknown fields."""
    names = b"".join(b',"%x":1' % number for number in range(600_000))
    _repeat(target, _COMPLETIONS, b'{"prompt":"a","max_tokens":1' + names + b"}")


def deep_nesting(target: Target) -> None:
    """Lists and objects in one another, a hundred thousand deep."""
    depth = 100_000
    _repeat(
        target,
        _COMPLETIONS,
        b"[" * depth,
        b'{"a":' * depth,
        b'{"prompt":' + b"[" * depth + b"]" * depth + b"}",
        b'{"prompt":"a","logit_bias":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
    )


def huge_numbers(target: Target) -> None:
    """Numbers of millions of digits, which take quadratic time to read."""
    digits = b"9" * (4 * _MIB)
    _repeat(
        target,
        _COMPLETIONS,
        b'{"prompt":"a","max_tokens":' + digits + b"}",
        b'{"prompt":[' + digits + b"]}",
        b'{"prompt":"a","temperature":0.' + digits + b"}",
    )
