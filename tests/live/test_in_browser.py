"""The live page in a real browser: cells equal the engine's pool, and no text becomes markup."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from kvscope.replay.app import replay_app
from kvscope.replay.past import past_router
from kvscope.replay.player import Player
from kvscope_events.events import PoolCreated, RequestArrived, SequenceAdded
from kvscope_exporter.state import Ledger, Steps
from kvscope_exporter.state.tenants import short_name
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.http_server import HttpServer
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import HELLO, hello, step
from tests.live.test_over_http import HOSTILE, app_of
from tests.live.test_past import Blocks, noted
from tests.live.test_truth import Watched
from tests.replay.recorded import make_recorder, record_load
from tests.support.chromium import Page, browsing
from tests.support.live_reader import CACHED
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.slow]

CELLS = """(() => {
  const { store } = kvscopeLive;
  const of = (name) => Array.from(store.columns[name] ?? []);
  return JSON.stringify({ map: store.pool?.map, cell: of('cell'), place: of('place') });
})()"""
FOLLOWED = "globalThis.kvscopeLive?.store.counts.snapshots > 0"


AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""Installed by scripts/axe."""
FINDINGS = """axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) =>
  passes.length ? violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`)
    : ['no rule applied'])"""
SIZES = [(width, scheme) for scheme in ("light", "dark") for width in (1600, 1280, 390)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as opened:
        opened.size(1280, 900)
        yield opened


@contextmanager
def shown(page: Page, app: ASGIApp) -> Iterator[None]:
    """The live page of an app of its own."""
    with (
        HttpServer(app, "127.0.0.1", 0) as server,
        page.at(f"http://127.0.0.1:{server.port}/live"),
    ):
        yield


def blocks_of(page: Page) -> Blocks:
    """As the page has them."""
    shown: dict[str, Any] = json.loads(page.value(CELLS))
    references = [max(0, cell - CACHED) for cell in shown["cell"]]
    lru = sorted((b for b, p in enumerate(shown["place"]) if p), key=shown["place"].__getitem__)
    return references, lru


def assert_equal(page: Page, watched: Watched) -> None:
    """Wait for the frame of the present state; the engine stands still meanwhile."""
    pool = watched.engine.pool.snapshot()
    wait_for(lambda: blocks_of(page) == (pool.ref_counts, pool.lru), f"{pool}", 10)


def test_cells_equal_the_engines_pool_at_200_random_moments(page: Page) -> None:
    watched = Watched(seed=11)
    watched.view.close()
    with shown(page, app_of(watched.exporter)):
        page.until(FOLLOWED)
        for _ in range(200):
            for _ in range(watched.choice.randrange(1, 5)):
                watched.disturb()
            assert_equal(page, watched)
        assert page.value("kvscopeLive.store.counts.frames") > 100
        assert page.complaints == []


def test_after_lost_batches_it_says_unknown_and_is_equal_again(page: Page) -> None:
    watched = Watched(seed=12, queue_batches=2)
    watched.view.close()
    with shown(page, app_of(watched.exporter)):
        page.until(FOLLOWED)
        for _ in range(5):
            with watched.target.pipeline.settled():  # none is read meanwhile
                for _ in range(30):
                    watched.disturb()
            page.until("kvscopeLive.store.pool.map === 'unknown'")
            page.until("!document.getElementById('no-map').hidden")
            assert "unknown" in page.value("document.getElementById('no-map').textContent")
            watched.engine.flush()  # brings the snapshot that was asked for
            page.until("kvscopeLive.store.pool.map === 'blocks'")
            assert_equal(page, watched)


def test_an_engine_that_restarts_is_shown_again(page: Page) -> None:
    watched = Watched(seed=14)
    watched.view.close()
    with shown(page, app_of(watched.exporter)):
        page.until(FOLLOWED)
        for _ in range(2):
            watched.target.pipeline.renew()  # as for a new producer: its Hello is still to come
            page.until("kvscopeLive.store.problem.startsWith('no engine')")
            time.sleep(0.3)
            watched.engine.bus.emit(HELLO)
            watched.engine.bus.emit(watched.engine.pool.snapshot())
            for _ in range(20):
                watched.disturb()
            assert_equal(page, watched)
            page.until("kvscopeLive.store.problem === ''")


def test_a_page_that_was_left_keeps_no_connection(page: Page) -> None:
    """A browser has six to a server; one that is gone back to follows again."""
    watched = Watched(seed=15)
    watched.view.close()
    with HttpServer(app_of(watched.exporter), "127.0.0.1", 0) as server:
        for _ in range(8):
            with page.at(f"http://127.0.0.1:{server.port}/live"):
                page.until(
                    f"{FOLLOWED} && !document.getElementById('why').textContent.endsWith('…')"
                )
        page.value("history.back()")
        page.until(FOLLOWED)
        watched.disturb()
        assert_equal(page, watched)
        page.call("Page.navigate", url="about:blank")


def test_hostile_names_are_shown_as_text(page: Page) -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, 1, hello(model_name=HOSTILE), PoolCreated(8, 16, 2048)),
        *(RequestArrived(1, 10, 10, tenant=HOSTILE), SequenceAdded(1, 1, 10, 10), step(waiting=1)),
    )
    with shown(page, app_of(exporter)):
        page.until(FOLLOWED)
        page.until(f"document.getElementById('status').textContent.includes({json.dumps(HOSTILE)})")
        put(
            subscription,
            *(1, 2, RequestArrived(2, 10, 10, tenant=HOSTILE), SequenceAdded(2, 2, 10, 10)),
            step(waiting=2),
        )
        cell = "document.querySelector('#sequences td:nth-child(3)')?.textContent"
        page.until(f"{cell} === {json.dumps(short_name(HOSTILE))}")
        assert page.value("document.querySelectorAll('img, body script, iframe').length") == 0
        assert page.complaints == []


def test_a_key_is_asked_for_and_used(page: Page) -> None:
    watched = Watched(seed=13)
    access = AccessConfig(pages=Credentials(["secret"]))
    with shown(page, Access(app_of(watched.exporter), access)):
        page.until("!document.getElementById('key-form').hidden")
        page.value(
            "document.getElementById('key').value = 'secret',"
            "document.querySelector('#key-form button').click()"
        )
        page.until(FOLLOWED)
        page.until("document.getElementById('key-form').hidden")
        assert_equal(page, watched)


def axe_rules() -> str:
    if not AXE.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"no {AXE}: scripts/axe installs it")
    return AXE.read_text()


@pytest.fixture
def axe(page: Page) -> Iterator[str]:
    """The rules, for pages of each size and scheme."""
    yield axe_rules()
    page.size(1280, 900)


def test_axe_finds_nothing_in_light_and_dark_at_three_widths(page: Page, axe: str) -> None:
    watched = Watched(seed=15)
    watched.view.close()
    with shown(page, app_of(watched.exporter)):
        page.value(axe)
        page.until(FOLLOWED)
        for _ in range(60):
            watched.disturb()
        page.until("document.querySelectorAll('#sequences td button').length > 2")
        for opened in (None, open_everything, open_the_past):
            if opened is not None:
                opened(page)
            for width, scheme in SIZES:
                page.size(width, 900, scheme)
                assert page.value(FINDINGS) == [], (width, scheme, opened)


def open_everything(page: Page) -> None:
    """Explanations, a block's life, a sequence's table, and the tour."""
    page.value(
        "document.getElementById('help').click(),"
        "document.querySelector('#sequences td button').click(),"
        "kvscopeLive.map.select(3),"
        "document.getElementById('tour-start').click()"
    )
    for name in ("block", "sequence", "tour"):
        page.until(f"document.getElementById('{name}').textContent")


def open_the_past(page: Page) -> None:
    page.value("document.getElementById('past-open').click()")
    page.until("document.getElementById('past-time').textContent")


def test_axe_finds_nothing_where_there_is_a_key_to_give_or_nothing_to_see(
    page: Page, axe: str
) -> None:
    locked = Access(app_of(Watched(seed=16).exporter), AccessConfig(pages=Credentials(["secret"])))
    empty = app_of(make_exporter()[0])
    for app, seen in ((locked, "!document.getElementById('key-form').hidden"), (empty, "true")):
        with shown(page, app):
            page.value(axe)
            page.until(seen)
            page.until("document.getElementById('status').textContent !== 'connecting'")
            for width, scheme in SIZES:
                page.size(width, 900, scheme)
                assert page.value(FINDINGS) == [], (width, scheme, seen)


def test_the_slider_of_a_recording_goes_back_and_forth(page: Page, tmp_path: Path) -> None:
    record_load(tmp_path / "load.kvsr", seconds=3, seed=4)
    player = Player(tmp_path / "load.kvsr")

    def shows_the_moment() -> int:
        """The page has followed the player, which stands still; returns the steps so far."""
        with player.present() as (target,):
            expected = sum(target.folds[Steps].duration.counts)
            cached = target.folds[Ledger].num_cached
        page.until(f"kvscopeLive.store.sums.steps === {expected}")
        assert json.loads(page.value(CELLS))["cell"].count(CACHED) == cached
        return expected

    def seek(share: float) -> int:
        begins, ends = player.status().begins, player.status().ends
        page.value(
            "(() => { const slider = document.getElementById('replay-at');"
            f"slider.value = {begins + share * (ends - begins)};"
            "slider.dispatchEvent(new Event('change')); })()"
        )
        wait_for(
            lambda: abs(player.status().at - begins - share * (ends - begins)) < 0.01, "the moment"
        )
        return shows_the_moment()

    with shown(page, replay_app(player)):
        page.until(f"{FOLLOWED} && !document.getElementById('replay').hidden")
        page.until("document.getElementById('replay-at').max > 1000")
        late, middle = seek(0.99), seek(0.5)
        assert 0 < middle < late
        at = player.status().at
        for _ in range(3):  # batches; not each of them ends a step
            page.value("document.getElementById('replay-forward').click()")
            wait_for(lambda before=at: player.status().at > before, "one batch forward")
            at = player.status().at
        assert shows_the_moment() > middle
        page.value("document.getElementById('replay-back').click()")
        wait_for(lambda: player.status().at < at, "one batch back")
        assert shows_the_moment() <= late
    player.close()


def test_the_past_is_gone_back_to_and_left(page: Page) -> None:
    watched = Watched(seed=18, recorder=make_recorder(None))
    watched.view.close()
    app = app_of(watched.exporter)
    app.include_router(past_router(lambda _name: watched.exporter))
    with shown(page, app):
        page.until(FOLLOWED)
        kept = [*noted(watched, 40)]
        page.value("document.getElementById('past-open').click()")
        page.until("kvscopeLive.chosen.past !== null")
        for moment, pool in reversed(kept[::8]):
            page.value(
                "(() => { const slider = document.getElementById('past-at');"
                f"slider.value = {moment}; slider.dispatchEvent(new Event('change')); }})()"
            )
            page.until(f"Math.abs(Number(kvscopeLive.chosen.past) - {moment}) < 1e-5")
            wait_for(lambda pool=pool: blocks_of(page) == pool, "the blocks of that moment")
        at = page.value("kvscopeLive.chosen.past")
        for button, is_there in (("forward", ">"), ("back", "<=")):
            page.value(f"document.getElementById('past-{button}').click()")
            page.until(f"Number(kvscopeLive.chosen.past) {is_there} {at}")
        page.value("document.getElementById('past-leave').click()")
        watched.disturb()
        assert_equal(page, watched)
        assert page.complaints == []


def test_the_tour_is_clicked_through_on_the_demo_while_it_happens(page: Page) -> None:
    with forked_kvscope("demo", "--port", "0") as process:
        url = process.find(r"live\s+(http://\S+)/live")
        with page.at(f"{url}/live"):
            take_the_tour(page)
            assert page.complaints == []


ROWS = "[...kvscopeLive.store.sequences.values()]"
SAME = "rows.filter((row) => row.request === one.request)"
PROVOKED = {
    6: f"{ROWS}.some((row) => row.prompt_tokens > 450 && row.hit_blocks >= 26)",
    7: f"((rows) => rows.some((one) => {SAME}.length === 4))({ROWS})",
    9: f"((rows) => rows.some((one) => {SAME}.length === 8))({ROWS})",
}
"""Steps of the tour whose button is pressed, and what then is among the sequences."""


def take_the_tour(page: Page) -> None:
    page.until("globalThis.kvscopeLive?.store.steps.length > 50", 120)
    page.value("document.getElementById('tour-start').click()")
    titles = set()
    for number in range(1, 11):
        titles.add(page.until("document.getElementById('tour-title').textContent"))
        if number == 2:
            page.value("document.querySelector('#sequences td button').click()")
        if number == 5:
            page.value("kvscopeLive.map.colour('prefix')")
        if number in PROVOKED:
            page.value("document.querySelector('#tour > button').click()")
            page.until(PROVOKED[number], 90)
        page.until("document.getElementById('tour').dataset.happened === 'true'", 90)
        page.value("document.querySelector('#tour .bar button:nth-of-type(2)').click()")
    assert len(titles) == 10
    assert page.value("document.getElementById('tour').hidden")
