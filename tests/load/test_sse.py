"""Server-sent events, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.load.sse import MAX_EVENT_BYTES, EventParser, EventTooLongError


def parse(chunks: list[bytes]) -> list[str]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_cut_gives_the_same_events(end: bytes) -> None:
    lines = [b": ping", b"event: message", b'data: {"a": 1}', b"", b"data:two", b"data: lines", b""]
    # After a final CR alone the parser waits for a possible LF.
    stream = end.join(lines) + end + b"data: [DONE]" + end + end + b":"
    expected = ['{"a": 1}', "two\nlines", "[DONE]"]
    assert parse([stream]) == expected
    assert parse([stream[i : i + 1] for i in range(len(stream))]) == expected
    for cut in range(len(stream)):
        assert parse([stream[:cut], stream[cut:]]) == expected


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=5),
    st.data(),
)
def test_text_survives_random_cuts(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(f"data: {text}\n\n".encode() for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    assert parse(chunks) == texts


def test_unicode_line_separators_do_not_end_lines() -> None:
    assert parse(["data: a\u2028b\x85c\x0bd\n\n".encode()]) == ["a\u2028b\x85c\x0bd"]


def test_an_unfinished_event_is_none() -> None:
    assert parse([b"data: half\n"]) == []


def test_an_endless_event_is_refused() -> None:
    parser = EventParser()
    for _ in range(4):
        assert list(parser.feed(b"data: " + b"x" * (MAX_EVENT_BYTES // 4 - 1) + b"\n")) == []
    with pytest.raises(EventTooLongError):
        list(parser.feed(b"data: and more\n"))


def test_an_event_of_empty_lines_is_refused() -> None:
    parser = EventParser()
    for _ in range(10):
        assert list(parser.feed(b"data\n" * 100_000)) == []
    with pytest.raises(EventTooLongError):
        list(parser.feed(b"data\n" * 100_000))
