"""Inputs of a parser, drawn by Hypothesis: kept ones with changes to their values and bytes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hypothesis import reject
from hypothesis import strategies as st

from tools.fuzz.target import Codec, Target

MAX_BYTES = 1 << 16
"""Longest input; a longer one is cut."""
_MAX_DEPTH = 50
"""Deepest document that is changed by its values."""
_WORDS = (
    *(b"", b"\x00", b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8"),
    *(b"\r\n", b"\n\n", b"\r", b"9" * 400, b"-1", b"1e999", b"NaN", b"Infinity", b"{", b"[", b'"'),
)
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2, 16, 255, 256, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.5, -0.0, 1e308, 5e-324, "", "a", "5", "\x00", "\u2028", "\U0001f600" * 9, "a" * 3000),
    *([], [0], [[]], ["a"], [None], {}, {"a": 1}, {"": None}, [0] * 40, ["", "a", 1]),
)
_WORD_STARTS = re.compile(rb"(?<![^\s{}\[\],:=\"])\b")
_SPLIT_BYTES = 4096
_LENGTHS = st.sampled_from((0, 0, 1, 2, 4, 16, MAX_BYTES))
_TIMES = st.sampled_from((1, 1, 1, 1, 2, 3, 50, 1000))
_DEPTHS = st.sampled_from((1, 2, 20, 200))
_deeper = st.sampled_from((True,) * 6 + (False,))
_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


class _Edit(NamedTuple):
    """Bytes in place of others."""

    length: int
    """Bytes that are removed."""
    piece: bytes | None
    """None: what was removed."""
    times: int

    def applied(self, content: bytes, start: int) -> bytes:
        end = start + self.length
        piece = content[start:end] if self.piece is None else self.piece
        return (content[:start] + piece * self.times + content[end:])[:MAX_BYTES]


@cache
def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """The kept inputs of the target with changes, which shrink to the kept ones."""
    return changed(list(target.corpus().values()), target.codec, target.tokens)


def changed(
    kept: list[bytes],
    codec: Codec | None,
    tokens: Sequence[bytes] = (),
    likely: Mapping[str, Sequence[object]] = {},
) -> st.SearchStrategy[bytes]:
    """These contents with changes. likely: values that do harm, by the key in whose place they are
    put, also where it is absent."""
    edits = _edits(kept, tokens)
    bytewise = _changed_bytes(st.sampled_from(kept), edits)
    documents = [] if codec is None else [v for each in kept for v in _decoded(codec, each)]
    if codec is None or not documents:
        return bytewise
    written = _changed_values(codec, documents, likely)
    return bytewise | written | written | _changed_bytes(written, edits)


@st.composite
def _changed_bytes(
    draw: st.DrawFn, bases: st.SearchStrategy[bytes], edits: st.SearchStrategy[_Edit]
) -> bytes:
    content = draw(bases)
    for _ in range(draw(st.integers(0, 4))):
        words = [match.start() for match in _WORD_STARTS.finditer(content[:_SPLIT_BYTES])]
        start = st.sampled_from([*words, len(content)]) | st.integers(0, len(content))
        content = draw(edits).applied(content, draw(start))
    return content


def _edits(kept: list[bytes], tokens: Sequence[bytes]) -> st.SearchStrategy[_Edit]:
    once, one, random = st.just(1), st.just(1), st.binary(max_size=16)
    none = st.just(0)
    words = st.sampled_from((*_WORDS, *tokens))
    tails = st.builds(lambda other, at: other[at:], st.sampled_from(kept), st.integers(0, 1000))
    return st.one_of(
        st.builds(_Edit, none, words, once),
        st.builds(_Edit, _LENGTHS, words, once),
        st.builds(_Edit, one, st.binary(min_size=1, max_size=1), once),
        st.builds(_Edit, _LENGTHS, random, _TIMES),
        st.builds(_Edit, _LENGTHS, st.none() | st.just(b""), _TIMES),
        st.builds(_Edit, st.just(MAX_BYTES), tails, once),
    )


@st.composite
def _changed_values(
    draw: st.DrawFn,
    codec: Codec,
    documents: list[object],
    likely: Mapping[str, Sequence[object]],
) -> bytes:
    value = draw(st.sampled_from(documents))
    if likely and isinstance(value, dict) and draw(_deeper):
        key = draw(st.sampled_from(list(likely)))
        value = {**value, key: draw(st.sampled_from(likely[key]))}
    for _ in range(draw(st.integers(0 if likely else 1, 3))):
        value = _changed(draw, value, documents)
    try:
        return codec.encode(value)[:MAX_BYTES]
    except (ValueError, TypeError, OverflowError, RecursionError):
        reject()  # a value that the format does not have


def _changed(draw: st.DrawFn, value: object, documents: list[object]) -> object:
    """The value with another in one place. No list or object of the original is changed."""
    if isinstance(value, dict) and value and draw(_deeper):
        key = draw(st.sampled_from(list(value)))
        return {**value, key: _changed(draw, value[key], documents)}
    if isinstance(value, list) and value and draw(_deeper):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], _changed(draw, value[at], documents), *value[at + 1 :]]
    return draw(_replacements(value, documents))


def _replacements(value: object, documents: list[object]) -> st.SearchStrategy[object]:
    parts = st.sampled_from(documents).flatmap(lambda other: st.sampled_from(list(_parts(other))))
    nested = st.builds(_nested, st.just(value), _DEPTHS, st.booleans())
    choices = [st.sampled_from(_VALUES), _documents, parts, nested]
    if isinstance(value, list | str | bytes):
        choices.append(st.integers(0, len(value)).map(lambda end: value[:end]))
        choices.append(st.integers(2, 64).map(lambda times: value * times))
    elif isinstance(value, dict):
        choices.append(st.sampled_from([*value, None]).map(lambda key: _without(value, key)))
        choices.append(st.integers(1, 64).map(lambda count: value | _keys(count)))
    elif isinstance(value, int | float):
        near = (value + 1, value - 1, -value, value * 2, value * 10**6)
        choices.append(st.sampled_from(near))
    return st.one_of(choices)


def _without(value: dict[object, object], gone: object) -> dict[object, object]:
    return {key: inner for key, inner in value.items() if key != gone}


def _keys(count: int) -> dict[object, object]:
    return {f"key {number}": number for number in range(count)}


def _nested(value: object, depth: int, in_lists: bool) -> object:
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


def _parts(value: object) -> Iterator[object]:
    """The value, and all that is in it."""
    level = [value]
    while level:
        yield from level
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _decoded(codec: Codec, content: bytes) -> Iterator[object]:
    """Nothing where the input is not well-formed, or nested too deeply."""
    try:
        value = codec.decode(content)
    except Exception:  # it is kept because it is wrong, in whatever way
        return
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
    if not level:
        yield value
