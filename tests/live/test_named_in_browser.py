"""The map by name in a real browser: of pages that are only counted, and of a stream of names."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.exporter.tree_pool import tree_path
from tests.kv_events.dialects import Removed, Stored
from tests.kv_events.publisher import Publisher
from tests.kv_events.watching import watched
from tests.live.test_in_browser import FOLLOWED, shown
from tests.live.test_named import CountedEngine, requests
from tests.live.test_over_http import app_of
from tests.support.chromium import Page, browsing
from tests.support.live_reader import FREE, FollowedView
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.slow]

SHOWN = """(() => {
  const { store } = kvscopeLive;
  const parts = ['map', 'strips', 'sequence-view', 'step-view', 'whatif-view'];
  return JSON.stringify({
    cells: Array.from(store.columns.cell ?? []),
    prefixes: Array.from(store.columns.prefix ?? []),
    said: document.getElementById('no-map').textContent,
    parts: parts.filter((id) => document.getElementById(id).checkVisibility()),
  });
})()"""
COUNTS = "document.getElementById('counts').textContent"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as opened:
        opened.size(1280, 900)
        yield opened


def seen(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.value(SHOWN))
    return found


def test_cells_of_counted_pages_equal_the_pools_names_at_random_moments(page: Page) -> None:
    engine, random = CountedEngine(), Random(6)
    pool = engine.pool
    with shown(page, app_of(engine.exporter)):
        page.until(FOLLOWED)
        for sequence, path in requests(random, 60):
            while len(pool.running) > 1:
                pool.end(random.choice(list(pool.running)))
            pool.start(sequence, path)
            engine.flush()
            references = sorted(pool.references.get(block, 0) + 2 for block in pool.names)
            wait_for(
                lambda wanted=references: sorted(c for c in seen(page)["cells"] if c) == wanted,
                f"{references}",
                10,
            )
        page.until(f"{COUNTS}.includes('have a name')")
        said = seen(page)
        assert said["parts"] == ["map", "strips", "sequence-view", "step-view", "whatif-view"]
        assert "no numbers" in said["said"]
        assert page.complaints == []


def test_a_stream_of_names_has_a_map_and_no_sequences(page: Page, tmp_path: Path) -> None:
    publisher = Publisher(f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay")
    try:
        publisher.say(*(Stored(tuple(range(20 * n, 20 * n + 9))) for n in range(12)))
        with watched(tmp_path, model_name="m") as there, shown(page, app_of(there.exporter)):
            there.expect(108)
            page.until(FOLLOWED)
            publisher.say(Removed(tuple(range(9))))
            publisher.say(Stored((500, 501)), Stored((510, 511)), Stored((502,), 501))
            view = FollowedView(there.exporter.targets[0])
            wait_for(lambda: sum(c != FREE for c in seen(page)["cells"]) == 104, "names", 10)
            assert len(view.names()) == 104
            page.until(f"{COUNTS} === '104 names in the cache'")
            said = seen(page)
            assert len({prefix for prefix in said["prefixes"] if prefix}) == 2
            assert said["parts"] == ["map"]
            assert "names the content of the cache and nothing else" in said["said"]
            assert page.complaints == []
    finally:
        publisher.close()


def test_a_name_tells_its_life(page: Page) -> None:
    engine = CountedEngine()
    with shown(page, app_of(engine.exporter)):
        page.until(FOLLOWED)
        engine.pool.start(5, tree_path([1, 2]))
        engine.flush()
        page.until("kvscopeLive.store.columns.cell?.[0] > 2")
        page.value("kvscopeLive.map.select(0)")
        page.until("document.getElementById('block').textContent.includes('names stored')")
        assert "asked for last by sequence 5" in page.value(
            "document.getElementById('block').textContent"
        )
