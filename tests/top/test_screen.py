"""The screen: keys, sizes, engines, a server that goes away, and a recording."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest
from textual.pilot import Pilot

from kvscope.replay.player import Player
from kvscope.top.app import Top
from kvscope.top.keys import KEYS, SCROLLING, move
from kvscope.top.reading import ServerReading
from kvscope.top.sources import RecordingSource, Source
from tests.replay.recorded import record_load
from tests.top.staged import Written, pressed, reading_of

pytestmark = pytest.mark.slow
TWO = """\
kvscope_kv_active_ratio{engine="0",model_name="one"} 0.25
kvscope_kv_active_ratio{engine="0",model_name="two"} 0.75
"""
GONE = "http://10.0.0.7:8010/metrics: Connection refused"


class Driven:
    """A screen that a test types into and reads."""

    def __init__(self, app: Top, pilot: Pilot[int]) -> None:
        self.app, self._pilot = app, pilot

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return [strip.text.rstrip() for strip in strips]

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)

    async def wait(self, *wanted: str, without: str = "\0") -> str:
        """The screen, once it has these texts."""
        deadline = time.monotonic() + 30
        while True:
            await asyncio.sleep(0.05)
            text = "\n".join(self.lines())
            if all(one in text for one in wanted) and without not in text:
                return text
            assert time.monotonic() < deadline, f"no {wanted} or still {without}:\n{text}"


@asynccontextmanager
async def shown(
    *sources: Source, size: tuple[int, int] = (80, 24), player: Player | None = None
) -> AsyncIterator[Driven]:
    app = Top(sources, 0.3, player)
    async with app.run_test(size=size) as pilot:
        yield Driven(app, pilot)


def asynchronous(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """A test that pytest can call; without arguments."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def under_pressure() -> Written:
    return Written(list(pressed().servers))


@asynchronous
async def test_a_small_terminal_has_strip_numbers_and_three_panels() -> None:
    async with shown(under_pressure()) as screen:
        text = await screen.wait("1 Preemptions", "2 Sequences", "3 Prefixes", "q quit ? help")
        assert "█ active" in text
        lines = screen.lines()
        assert len(lines) == 24
        assert lines[0].startswith("▲ ")
        await screen.resize(60, 15)
        text = await screen.wait("full 60 s", "1 Preemptions", "victim")
        assert max(map(len, screen.lines())) <= 60
        await screen.resize(200, 50)
        await screen.wait("4 Tenants", "5 Why", "◀ you are here", "7 Memory")


@asynchronous
async def test_keys_choose_scroll_sort_and_filter_a_panel() -> None:
    async with shown(under_pressure()) as screen:
        await screen.wait("━1 Preemptions", "not yet")
        await screen.press("pagedown", "j", "down")
        await screen.wait("━1 Preemptions", without="not yet")
        await screen.press("g")
        await screen.wait("victim", "not yet")
        await screen.press("s", "s", "s")
        await screen.wait("recomputed▾")
        await screen.press("tab")
        await screen.wait("━2 Sequences", without="1 Preemptions")
        await screen.press("slash", *"none q")
        await screen.wait("nothing has 'none q' in it")
        await screen.press("escape")
        await screen.wait("━2 Sequences", without="nothing has")
        await screen.press("slash", *"decode", "enter")
        await screen.wait("━2 Sequences /decode", without="queued  ")
        await screen.press("5")
        await screen.wait("━5 Why", "of the last")
        await screen.press("shift+tab")
        await screen.wait("━4 Tenants")


@asynchronous
async def test_help_names_every_key_panel_and_number() -> None:
    async with shown(under_pressure(), size=(100, 80)) as screen:
        await screen.wait("━1 Preemptions")
        await screen.press("question_mark")
        text = await screen.wait("shift+tab", "8 Engines", "probability that within a minute")
        assert "To the next moment that the recorder marked." not in text
        await screen.press("question_mark")
        await screen.wait("━1 Preemptions")
        await screen.press("q")
    assert screen.app.return_value == 0


@asynchronous
async def test_engines_go_round_and_what_is_shown_can_be_frozen() -> None:
    source = Written([reading_of(TWO, 1000.0)])
    async with shown(source, size=(120, 30)) as screen:
        await screen.wait("one · engine 0", "one of 2, e: next")
        await screen.press("e")
        await screen.wait("two · engine 0 · http", "75 %")
        await screen.press("e")
        await screen.wait("one · engine 0 · http", "25 %")
        await screen.press("E", "8")
        await screen.wait("two · engine 0 · http", "2 of 2 is shown")
        await screen.press("space")
        await screen.wait("00:16:40 UTC, FROZEN")
        source.readings = [[reading_of(TWO, 1060.0)]]
        await asyncio.sleep(0.6)
        await screen.wait("00:16:40 UTC, FROZEN")
        await screen.press("space")
        await screen.wait("00:17:40 UTC, every 0.3 s")
        await screen.press("ctrl+c")
    assert screen.app.return_value == 130


@asynchronous
async def test_a_server_goes_away_and_comes_back_beside_another() -> None:
    source = Written([reading_of(TWO)])
    silent = Written(GONE.replace("10.0.0.7", "10.0.0.8"), place="http://10.0.0.8:8010")
    async with shown(source, silent, size=(120, 30)) as screen:
        await screen.wait("one · engine 0", "http://10.0.0.8:8010/metrics: Connection refused")
        source.readings = [GONE]
        text = await screen.wait("the values below are old", "OLD, of 00:16:40 UTC", "25 %")
        assert text.startswith("No answer since ")
        source.readings = [[reading_of(TWO)]]
        await screen.wait("http://10.0.0.7:8010: back since", without="OLD")


@asynchronous
async def test_a_server_that_does_not_answer_does_not_hold_the_keys() -> None:
    answered = Event()

    class Slow(Written):
        def read(self) -> list[ServerReading]:
            answered.wait(20)
            return super().read()

    async with shown(Slow([reading_of(TWO)]), under_pressure()) as screen:
        await screen.wait("━1 Preemptions")
        await screen.press("3")
        await screen.wait("━3 Prefixes")
        answered.set()
        await screen.wait("one of 3")


def test_no_key_does_two_things() -> None:
    names = [name for key in (*KEYS, *SCROLLING) for name in key.key.split(",")]
    names.remove("space")  # pauses a recording, and freezes what is live
    assert len(names) == len(set(names))


def test_keys_move_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "load.kvsr"
    record_load(path, seconds=3, seed=1)
    now = [0.0]
    player = Player(path, clock=lambda: now[0])
    move(player, "pause")
    assert player.status().playing
    move(player, "faster")
    assert player.status().speed == 2.0
    now[0] += 1.0
    at = player.status().at
    assert at == pytest.approx(player.status().begins + 2.0, abs=0.01)
    move(player, "pause")
    move(player, "step_back")
    assert player.status().at < at
    before = player.status().at
    move(player, "step")
    assert player.status().at > before
    move(player, "jump")
    assert player.status().at == player.status().ends
    move(player, "pause")  # from its end it plays from its beginning
    assert player.status().at == player.status().begins

    async def watched() -> None:
        async with shown(RecordingSource(path, player), player=player) as screen:
            await screen.wait("at 0 %, playing 2x", "+ speed", "m mark")
            await screen.press("space")
            await screen.wait("paused")
            await screen.press("right_square_bracket")
            await screen.wait("at 100 %, paused")
            await screen.press("left_square_bracket", "minus")
            await screen.wait("playing 1x")

    asyncio.run(watched())
    player.close()
