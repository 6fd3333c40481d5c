"""Mutations of bytes: what is not even well-formed."""

import random
from collections.abc import Callable, Sequence

MAX_BYTES = 1 << 16
"""Of an input; what is larger is cut."""
_STRANGE = (
    *(b"", b"\x00", b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8"),
    *(b"\r\n", b"\n\n", b"\r", b"9" * 400, b"-1", b"1e999", b"NaN", b"Infinity", b"{", b"[", b'"'),
)


def mutated(
    content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]
) -> bytes:  # fmt: skip
    """The bytes with one to four changes. other: another input. tokens: words of the format."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(_CHANGES)(content, rng, other, tokens)[:MAX_BYTES]
    return content


Change = Callable[[bytes, random.Random, bytes, Sequence[bytes]], bytes]


def _place(content: bytes, rng: random.Random) -> tuple[int, int]:
    """A random part, mostly a short one."""
    start = rng.randint(0, len(content))
    longest = len(content) - start
    return start, start + min(longest, rng.choice((0, 1, 1, 2, 4, 16, longest)))


def _flipped(content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    if not content:
        return b"\x00"
    at = rng.randrange(len(content))
    return content[:at] + bytes((content[at] ^ 1 << rng.randrange(8),)) + content[at + 1 :]


def _overwritten(
    content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]
) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + rng.randbytes(end - start) + content[end:]


def _removed(content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + content[end:]


def _repeated(content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _place(content, rng)
    times = rng.choice((2, 3, 50, 1000))
    return content[:start] + (content[start:end] * times)[:MAX_BYTES] + content[end:]


def _inserted(content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _place(content, rng)
    cut = start if rng.random() < 0.5 else end
    return content[:start] + rng.choice((*_STRANGE, *tokens)) + content[cut:]


def _spliced(content: bytes, rng: random.Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    return content[: _place(content, rng)[0]] + other[_place(other, rng)[0] :]


_CHANGES: tuple[Change, ...] = (
    *(_flipped, _overwritten, _removed, _repeated, _inserted, _inserted, _spliced),
)
