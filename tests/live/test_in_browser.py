"""The live page in a real browser: its cells equal the engine's pool, and no text becomes markup."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.fold import Ledger
from exporter.web.access import Access, AccessConfig, Credentials
from exporter.web.http_server import HttpServer
from kvscope.replaying.app import replay_app
from kvscope.replaying.player import Player
from kvscope_events.events import PoolCreated, RequestArrived, SequenceAdded
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import hello, step
from tests.live.test_over_http import HOSTILE, app_of
from tests.live.test_truth import Watched
from tests.playback.recorded import record_load
from tests.support.chromium import Page, browsing
from tests.support.live_reader import CACHED
from tests.support.process import forked_kvscope

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.slow]

CELLS = """(() => {
  const { store } = kvscopeLive;
  const of = (name) => Array.from(store.columns[name] ?? []);
  return JSON.stringify({ map: store.pool?.map, cell: of('cell'), place: of('place') });
})()"""
FOLLOWED = "globalThis.kvscopeLive?.store.counts.snapshots > 0"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as opened:
        opened.size(1280, 900)
        yield opened


def assert_equal(page: Page, watched: Watched) -> None:
    """Wait for the frame of the present state; the engine stands still meanwhile."""
    pool = watched.engine.pool.snapshot()
    deadline = time.monotonic() + 10
    while True:
        shown: dict[str, Any] = json.loads(page.value(CELLS))
        references = [max(0, cell - CACHED) for cell in shown["cell"]]
        lru = sorted((b for b, p in enumerate(shown["place"]) if p), key=shown["place"].__getitem__)
        if (references, lru) == (pool.ref_counts, pool.lru):
            return
        assert time.monotonic() < deadline, (shown, pool)
        time.sleep(0.02)


def test_cells_equal_the_engines_pool_at_200_random_moments(page: Page) -> None:
    watched = Watched(seed=11)
    watched.view.close()
    with HttpServer(app_of(watched.exporter), "127.0.0.1", 0) as server:
        page.open(f"http://127.0.0.1:{server.port}/live")
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
    with HttpServer(app_of(watched.exporter), "127.0.0.1", 0) as server:
        page.open(f"http://127.0.0.1:{server.port}/live")
        page.until(FOLLOWED)
        for _ in range(5):
            for _ in range(30):
                watched.disturb()
            page.until("kvscopeLive.store.pool.map === 'unknown'")
            page.until("!document.getElementById('no-map').hidden")
            assert "unknown" in page.value("document.getElementById('no-map').textContent")
            watched.engine.flush()  # brings the snapshot that was asked for
            page.until("kvscopeLive.store.pool.map === 'blocks'")
            assert_equal(page, watched)


def test_hostile_names_are_shown_as_text(page: Page) -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, 1, hello(model_name=HOSTILE), PoolCreated(8, 16, 2048)),
        *(RequestArrived(1, 10, 10, tenant=HOSTILE), SequenceAdded(1, 1, 10, 10), step(waiting=1)),
    )
    with HttpServer(app_of(exporter), "127.0.0.1", 0) as server:
        page.open(f"http://127.0.0.1:{server.port}/live")
        page.until(FOLLOWED)
        page.until(f"document.getElementById('status').textContent.includes({json.dumps(HOSTILE)})")
        put(
            subscription,
            *(1, 2, RequestArrived(2, 10, 10, tenant=HOSTILE), SequenceAdded(2, 2, 10, 10)),
            step(waiting=2),
        )
        cell = "document.querySelector('#sequences td:nth-child(3)')?.textContent"
        page.until(f"{cell} === {json.dumps(HOSTILE)}")
        assert page.value("document.querySelectorAll('img, body script, iframe').length") == 0
    assert page.complaints == []


def test_a_key_is_asked_for_and_used(page: Page) -> None:
    watched = Watched(seed=13)
    access = AccessConfig(pages=Credentials(["secret"]))
    app = Access(app_of(watched.exporter), access)
    with HttpServer(app, "127.0.0.1", 0) as server:
        page.open(f"http://127.0.0.1:{server.port}/live")
        page.until("!document.getElementById('key-form').hidden")
        page.value(
            "document.getElementById('key').value = 'secret',"
            "document.querySelector('#key-form button').click()"
        )
        page.until(FOLLOWED)
        page.until("document.getElementById('key-form').hidden")
        assert_equal(page, watched)
    page.complaints.clear()  # the refusals before the key


def test_the_slider_of_a_recording_goes_back_and_forth(page: Page, tmp_path: Path) -> None:
    record_load(tmp_path / "load.kvsr", seconds=3, seed=4)
    player = Player(tmp_path / "load.kvsr")
    with HttpServer(replay_app(player), "127.0.0.1", 0) as server:
        page.open(f"http://127.0.0.1:{server.port}/live")
        page.until("!document.getElementById('replay').hidden")
        steps = "kvscopeLive.store.figures.at(-1)?.steps"

        def seek(share: float) -> int:
            page.value(
                "(() => { const slider = document.getElementById('replay-at');"
                f"slider.value = +slider.min + {share} * (slider.max - slider.min);"
                "slider.dispatchEvent(new Event('change')); })()"
            )
            time.sleep(1.0)
            return int(page.until(steps))

        late, middle = seek(0.99), seek(0.5)
        assert 0 < middle < late
        page.value("document.getElementById('replay-forward').click()")
        page.until(f"{steps} === {middle + 1}")
        page.value("document.getElementById('replay-back').click()")
        page.until(f"{steps} === {middle}")
        with player.present() as (target,):
            expected = target.folds[Ledger].num_cached
        assert json.loads(page.value(CELLS))["cell"].count(CACHED) == expected
    player.close()


def test_the_tour_is_clicked_through_on_the_demo_while_it_happens(page: Page) -> None:
    with forked_kvscope("demo", "--port", "0") as process:
        url = process.find(r"live\s+(http://\S+)/live")
        page.open(f"{url}/live")
        page.until("globalThis.kvscopeLive?.store.steps.length > 50", 60)
        page.value("document.getElementById('tour-start').click()")
        titles = set()
        for number in range(1, 11):
            titles.add(page.until("document.getElementById('tour-title').textContent"))
            if number == 2:
                page.value("document.querySelector('#sequences td button').click()")
            if number == 5:
                page.value("kvscopeLive.map.colour('prefix')")
            page.until("document.getElementById('tour').dataset.happened === 'true'", 90)
            page.value("document.querySelector('#tour .bar button:nth-of-type(2)').click()")
        assert len(titles) == 10
        assert page.value("document.getElementById('tour').hidden")
    assert page.complaints == []
