"""Keys: their names by the bytes of terminals, and what they change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.replaying.player import Player
from kvscope.top.figures import EngineName
from kvscope.top.follower import Key
from kvscope.top.keys import KEYS, decoded
from kvscope.top.panels import PANELS
from kvscope.top.screen import control
from kvscope.top.view import View
from tests.playback.recorded import record_load

ENGINES: list[Key] = [("a", EngineName("m", "0")), ("a", EngineName("m", "1"))]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (b"q", ["q"]),
        (b"\t\x1b[Z", ["tab", "backtab"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\r\x7f", ["enter", "backspace"]),
        ("ü→".encode(), ["ü", "→"]),
        (b"\x1b[200~", []),
        (b"\x1b[15;2~q", ["q"]),
        (b"\x1bxq", ["q"]),
        (b"\x00\x01", []),
        (b"\xff\xfeq", ["q"]),
    ],
)
def test_bytes_have_names(typed: bytes, names: list[str]) -> None:
    assert decoded(typed) == names


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded(typed: bytes) -> None:
    assert all(name.isprintable() and name for name in decoded(typed))


def test_no_key_does_two_things() -> None:
    names = [name for key in KEYS for name in key.names]
    assert len(names) == len(set(names))


def press(view: View, *names: str) -> list[object]:
    return [view.press(name, ENGINES, {"preemptions": ["ago", "stalled"]}) for name in names]


def test_panels_go_round_and_have_numbers() -> None:
    view = View(panels=PANELS)
    press(view, "backtab")
    assert view.ordered[0].key == "engines"
    press(view, "tab", "tab")
    assert view.ordered[0].key == "sequences"
    press(view, "5")
    assert view.ordered[0].key == "tenants"
    press(view, "9")
    assert view.ordered[0].key == "tenants"


def test_engines_go_round() -> None:
    view = View(panels=PANELS)
    press(view, "e")
    assert view.engine == ENGINES[1]
    press(view, "e")
    assert view.engine == ENGINES[0]
    press(view, "E")
    assert view.engine == ENGINES[1]


def test_sorting_goes_through_the_columns_of_the_first_panel() -> None:
    view = View(panels=PANELS)
    seen = []
    for _ in range(3):
        press(view, "s")
        seen.append(view.sorts["preemptions"])
    assert seen == ["ago", "stalled", ""]


def test_a_filter_is_typed_kept_and_dropped() -> None:
    view = View(panels=PANELS)
    press(view, "/", "q", "1", "2", "backspace")
    assert (view.is_typing, view.pattern) == (True, "q1")
    press(view, "enter")
    assert (view.is_typing, view.pattern) == (False, "q1")
    press(view, "escape")
    assert view.pattern == ""


def test_a_viewer_of_a_recording_has_more_keys() -> None:
    assert press(View(panels=PANELS), "right", "+", "m", " ", "q") == [
        None,
        None,
        None,
        None,
        "quit",
    ]
    recorded = View(panels=PANELS, is_recording=True)
    assert press(recorded, "right", "+", "m", " ") == ["step", "faster", "mark", "freeze"]
    assert not recorded.frozen


def test_keys_move_a_recording(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("keys") / "load.kvsr"
    record_load(path, seconds=3, seed=1)
    now = [0.0]
    player = Player(path, clock=lambda: now[0])
    control(player, "freeze")
    assert player.status().playing
    control(player, "faster")
    assert player.status().speed == 2.0
    now[0] += 1.0
    at = player.status().at
    assert at == pytest.approx(player.status().begins + 2.0, abs=0.01)
    control(player, "freeze")
    control(player, "step_back")
    assert player.status().at < at
    before = player.status().at
    control(player, "step")
    assert player.status().at > before
    control(player, "jump")
    assert player.status().at == player.status().ends
    control(player, "freeze")  # from its end it plays from its beginning
    assert player.status().at == player.status().begins
    player.close()
