"""Bodies that cost far more to refuse or to answer than to send."""

from collections.abc import Callable, Iterable

from tools.chaos.checkpoint import TRAPS
from tools.chaos.target import (
    Attack,
    NotHeldError,
    Target,
    chat,
    completion,
    request,
    side_by_side,
)

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_MIB = 1 << 20
_PAUSE_SECONDS = 0.05


def _posted(path: str, make: Callable[[], Iterable[bytes]], clients: int = 1) -> Attack:
    """The bodies in turn, from as many clients, over and over."""

    def attack(target: Target) -> None:
        bodies = list(make())

        def repeat(_: int) -> None:
            while True:
                for body in bodies:
                    if target.over:
                        return
                    target.post(path, body)
                    target.wait(_PAUSE_SECONDS)

        side_by_side(repeat, clients)

    return attack


def _list_of(first: bytes, element: bytes, size: int) -> bytes:
    return b"[" + first + (b"," + element) * (size // (len(element) + 1)) + b"]"


def _stop_tokens() -> Iterable[bytes]:
    head = b'{"prompt":"a","max_tokens":1,"stop_token_ids":'
    for token in (b"1", b"-1"):
        yield head + _list_of(token, token, 7 * _MIB) + b"}"


def _wrong_parts() -> Iterable[bytes]:
    many = _list_of(b"0", b"0", 7 * _MIB)
    yield b'{"messages":[{"role":"user","content":' + many + b"}]}"
    yield b'{"messages":' + many + b"}"


def _many_names() -> Iterable[bytes]:
    names = b"".join(b',"%x":1' % number for number in range(600_000))
    yield b'{"prompt":"a","max_tokens":1' + names + b"}"


def _nested() -> Iterable[bytes]:
    depth = 100_000
    yield b"[" * depth
    yield b'{"a":' * depth
    yield b'{"prompt":' + b"[" * depth + b"]" * depth + b"}"
    yield b'{"prompt":"a","logit_bias":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


def _huge_numbers() -> Iterable[bytes]:
    """They take quadratic time to read."""
    digits = b"9" * (4 * _MIB)
    for head, tail in (
        (b'{"prompt":"a","max_tokens":', b"}"),
        (b'{"prompt":[', b"]}"),
        (b'{"prompt":"a","temperature":0.', b"}"),
    ):
        yield head + digits + tail


def _messages(message: bytes, count: int) -> list[bytes]:
    return [b'{"messages":[' + (message + b",") * count + message + b"]}"]


def _stop_strings(target: Target) -> None:
    """Long stop strings, of which one matches the text so far but for its end."""
    answer = target.send(request("POST", _COMPLETIONS, completion(max_tokens=500)))
    begun = answer.rpartition(b'"text":"')[2].partition(b'"')[0].decode(errors="replace")
    stops = ["\u4e00" * 5000] * 15 + [begun + "zzz" * 1000]
    _posted(_COMPLETIONS, lambda: [completion(max_tokens=2000, stop=stops)], 2)(target)


def _sprung(*traps: str) -> Attack:
    """Traps of the chat template. Raises NotHeldError where chats are not served."""
    assert set(traps) <= set(TRAPS)
    spring = _posted(_CHAT, lambda: [chat(trap, max_tokens=1) for trap in traps], 3)

    def attack(target: Target) -> None:
        status = target.post(_CHAT, chat("hello", max_tokens=1))
        if status not in (200, 0):
            raise NotHeldError(f"a chat was answered {status}")
        spring(target)

    return attack


_LOGPROBS = {"n": 8, "max_tokens": 400, "logprobs": True, "top_logprobs": 20, "ignore_eos": True}
BODIES: dict[str, Attack] = {
    "many_errors": _posted(
        _COMPLETIONS,
        lambda: [b'{"prompt":' + _list_of(b'"a"', b"1", n * _MIB) + b"}" for n in (1, 7)],
    ),
    "many_wrong_parts": _posted(_CHAT, _wrong_parts),
    "many_stop_tokens": _posted(_COMPLETIONS, _stop_tokens),
    "many_names": _posted(
        _COMPLETIONS,
        lambda: [
            b'{"prompt":"a","max_tokens":1'
            + b"".join(b',"%x":1' % n for n in range(600_000))
            + b"}"
        ],
    ),
    "deep_nesting": _posted(_COMPLETIONS, _nested),
    "huge_numbers": _posted(_COMPLETIONS, _huge_numbers),
    "empty_messages": _posted(_CHAT, lambda: _messages(b'{"role":"user","content":""}', 250_000)),
    "long_roles": _posted(
        _CHAT, lambda: _messages(b'{"role":"' + b"u" * 64 + b'","content":""}', 80_000)
    ),
    "long_text": _posted(_COMPLETIONS, lambda: [b'{"prompt":"' + b"a b" * (2 * _MIB) + b'"}']),
    "long_word": _posted(_COMPLETIONS, lambda: [b'{"prompt":"' + b"a" * (7 * _MIB) + b'"}']),
    "many_token_ids": _posted(_COMPLETIONS, lambda: [b'{"prompt":[1' + b",1" * (3 * _MIB) + b"]}"]),
    "large_log_probabilities": _posted(_CHAT, lambda: [chat("hello", **_LOGPROBS)], 2),
    "streamed_log_probabilities": _posted(
        _COMPLETIONS, lambda: [completion(n=8, max_tokens=400, logprobs=20, stream=True)], 2
    ),
    "stop_strings": _stop_strings,
    "slow_templates": _sprung("endless", "nested", "power"),
    "large_templates": _sprung("large", "heavy"),
    "failing_templates": _sprung("type", "division", "include", "raised"),
}
