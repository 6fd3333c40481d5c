"""Stop strings, however the text is cut into tokens."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.server.generation import StopPattern, StopStrings

_TEXT = st.text("ab", max_size=12)


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """By hand: growing the text letter by letter, the first stop string to be complete wins."""
    for end in range(len(text) + 1):
        found = [at for stop in stops if (at := text[:end].find(stop)) >= 0]
        if found:
            return text[: min(found)], True
    return text, False


@given(_TEXT, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_letters_one_by_one(text: str, stops: list[str]) -> None:
    strings = StopStrings([StopPattern(stop) for stop in stops])
    shown = ""
    for letter in text:
        piece, stopped = strings.add(letter)
        shown += piece
        if stopped:
            break
    else:
        shown += strings.flush()
        stopped = False
    assert (shown, stopped) == cut(text, stops)


@given(st.lists(_TEXT, max_size=5), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_nothing_shown_has_to_be_taken_back(pieces: list[str], stops: list[str]) -> None:
    strings = StopStrings([StopPattern(stop) for stop in stops])
    shown, stopped = "", False
    for piece in pieces:
        new, stopped = strings.add(piece)
        shown += new
        if stopped:
            break
    if not stopped:
        shown += strings.flush()
        assert shown == "".join(pieces)
    assert not any(stop in shown for stop in stops)


@given(st.lists(_TEXT, max_size=5), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_same_however_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    strings = StopStrings([StopPattern(stop) for stop in stops])
    shown, stopped = "", False
    for piece in pieces:
        new, stopped = strings.add(piece)
        shown += new
        if stopped:
            break
    else:
        shown += strings.flush()
    assert (shown, stopped) == cut("".join(pieces), stops)


@pytest.mark.timed
def test_work_grows_with_the_text_not_with_the_stop_strings_length() -> None:
    """Each stop string but for its last letter is what the text repeats: the worst there is."""

    def seconds(length: int) -> float:
        strings = StopStrings([StopPattern("a" * length + "b") for _ in range(16)])
        began = time.process_time()
        for _ in range(2000):
            strings.add("a")
        return time.process_time() - began

    short = min(seconds(10) for _ in range(3))
    assert min(seconds(1000) for _ in range(3)) < 3 * short + 0.05
