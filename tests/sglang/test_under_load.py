"""A real SGLang under load, observed through `kvscope run`: every sum that it has itself."""

import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from kvscope.doctor.switching import switch
from tests.sglang.conftest import REFERENCE, Unobserved
from tests.sglang.counted_otherwise import (
    ALL,
    REASONS,
    WHEN_CLIENTS_LEAVE,
    WHEN_RETRACTED_CLIENTS_LEAVE,
)
from tests.sglang.counters import both, disagreements
from tests.sglang.http_load import ask, jobs
from tests.sglang.server import Observed
from tests.support.checkpoints import sizes
from tests.support.environments import Reason
from tests.support.live_reader import CACHED, FREE, LiveReader
from tests.support.pages import sample
from tests.support.scraped import Scraped, scraped
from tests.support.states import PHASE, PHASES
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.sglang, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(600)]

LEAVING = 0.5
BLOCKS = "kvscope_kv_blocks"
PARTS = [part for part in PHASES if part != "profile"]
"""An SGLang measures no step while it starts."""


SEEN_SECONDS = 3.0
"""A start that takes longer after its imports is seen on a page that is read all the time."""


def compare(sglang: Observed, *, without: Collection[str] = ()) -> None:
    """Both pages say the same once all is quiet."""
    sglang.settle()
    assert disagreements(sglang.page(), sglang.server.page(), without=without) == []
    assert sglang.value("kvscope_kv_ledger_imbalance_blocks") == 0
    assert sglang.server.said_by_us() == ["observing"], sglang.server.tail()


def sglang_says(sglang: Observed, what: str) -> float:
    return both(what, sglang.page(), sglang.server.page())[1]


@pytest.fixture(scope="module", autouse=True)
def pages(sglang: Observed) -> Iterator[Scraped]:
    """The pages that were served meanwhile."""
    with scraped(sglang.url) as running:
        yield running


def test_another_kind_of_sglang_is_served_unobserved_and_says_why(unobserved: Unobserved) -> None:
    said = [line for line in unobserved.log.splitlines() if "kvscope: " in line]
    assert len(said) == 1
    assert re.search("off: --enable-streaming-session: sessions keep pages", said[0])
    assert f"kvscope: off: {unobserved.heard}. SGLang runs on, unobserved." in said[0]


def test_it_has_said_how_its_start_went(unobserved: Unobserved) -> None:
    hello, start = unobserved.hello, unobserved.start
    assert (hello.engine, hello.worker, hello.ready) == ("0", "0", True)
    assert [*start.began_ns] == PARTS
    assert start.ended_ns is not None


def test_the_page_shows_the_parts_of_its_start_while_it_loads(
    sglang: Observed, model: Path
) -> None:
    states, page = sglang.states, sglang.page()
    assert states.seen == ["expected", "loading", "ready"]
    assert all(now[: len(before)] == before for before, now in pairwise(states.begun))
    assert states.begun[-1] == PARTS[: len(states.begun[-1])]
    took = [sample(page, PHASE, phase=part, worker="0") or 0.0 for part in PARTS]
    print("parts of the start:", dict(zip(PARTS, took, strict=True)), states.begun)
    assert all(took)
    if sum(took[1:]) > SEEN_SECONDS:  # an idle machine loads the tiny model faster than that
        assert states.ready_while_loading, "kvscope_engine_ready was 0 meanwhile"
    read, files = sizes(model)
    for part, size in {"read": read, "file": files}.items():
        assert sample(page, f"kvscope_start_weights_{part}_bytes", worker="0") == size
    assert sample(page, "kvscope_engine_ready") == 1


def test_it_returns_the_tokens_of_an_unobserved_one(
    sglang: Observed, unobserved: Unobserved
) -> None:
    assert sum(map(len, unobserved.answers)) > 1000
    assert ask(sglang.server, REFERENCE) == unobserved.answers
    compare(sglang)


def test_every_sum_under_load(sglang: Observed) -> None:
    rounds = 0
    while sglang_says(sglang, "retractions") < 2 and rounds < 4:
        rounds += 1
        ask(sglang.server, jobs(40, rounds))
    compare(sglang)
    for what in ("hit", "evicted", "retractions", "computed again"):
        assert sglang_says(sglang, what) > 0, what


def test_the_live_map_has_a_cell_for_each_page_with_a_name(sglang: Observed) -> None:
    """SGLang numbers none; at rest, no sequence refers to one."""
    ask(sglang.server, jobs(12, 49))
    sglang.settle()
    reader = LiveReader(httpx.get(f"{sglang.url}/live/snapshot", timeout=30).content)
    assert reader.pool["map"] == "names"
    cells = reader.columns["cell"]
    assert len(cells) == reader.pool["num_blocks"]
    assert set(cells) <= {FREE, CACHED}
    assert cells.count(CACHED) == reader.pool["names"] == reader.pool["cached"] > 10
    ask(sglang.server, jobs(12, 50))
    sglang.settle()
    reader = LiveReader(httpx.get(f"{sglang.url}/live/snapshot", timeout=30).content)
    cells = reader.columns["cell"]
    assert cells.count(CACHED) == reader.pool["cached"] == sglang.value(BLOCKS, state="cached")
    assert len(set(reader.columns["prefix"]) - {0}) > 1, "two prompts that begin differently"
    number = cells.index(CACHED)
    document = httpx.get(f"{sglang.url}/live/block", params={"id": number}, timeout=30).json()
    assert bytes.fromhex(document["name"])


def test_a_flush(sglang: Observed) -> None:
    resets = sglang.value("kvscope_prefix_cache_resets_total") or 0
    sglang.settle()
    sglang.server.flush()
    compare(sglang)
    assert sglang.value("kvscope_prefix_cache_resets_total") == resets + 1
    assert sglang.value("kvscope_kv_blocks", state="cached") == 0


def test_clients_that_leave(sglang: Observed) -> None:
    """They wait, stream, or have their answer when they do."""
    retractions = sglang_says(sglang, "retractions")
    ask(sglang.server, jobs(40, 11, leaving=LEAVING))
    sglang.settle()
    none = sglang_says(sglang, "retractions") == retractions
    compare(sglang, without=_otherwise(retracted=not none))
    ours, theirs = both("requests", sglang.page(), sglang.server.page())
    assert theirs < ours <= theirs + 40
    ours, theirs = both("aborted", sglang.page(), sglang.server.page())
    assert 5 < ours <= theirs <= 40


def _otherwise(*, retracted: bool) -> set[str]:
    return {*WHEN_CLIENTS_LEAVE, *(WHEN_RETRACTED_CLIENTS_LEAVE if retracted else ())}


def test_a_pause_that_retracts_what_runs(sglang: Observed, unobserved: Unobserved) -> None:
    """As for new weights: all come again, and each is one request."""
    arrived = sglang.value("kvscope_events_total", type="RequestArrived") or 0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, sglang.server, REFERENCE)
        wait_for(lambda: sglang.value("kvscope_requests", state="running"), "they run")
        sglang.server.pause()
        sglang.server.resume()
        assert asked.result() == unobserved.answers
    compare(sglang, without=ALL)
    retracted = sglang.value("kvscope_preemptions_total", cause="reset") or 0
    assert retracted > 0
    ours, theirs = both("computed again", sglang.page(), sglang.server.page())
    assert ours <= theirs <= ours + retracted
    now = sglang.value("kvscope_events_total", type="RequestArrived") or 0
    assert now == arrived + len(REFERENCE)


def test_an_order_that_would_leave_a_part_behind_is_refused_and_changes_nothing(
    sglang: Observed,
) -> None:
    """Its tree, in Rust, names pages for us alone."""
    found = switch(sglang.sockets, on=False, seconds=60)
    assert found.state == "cannot be switched"
    assert "names pages for the observer alone" in found.problem
    assert switch(sglang.sockets, on=True, seconds=60).state == "on"
    ask(sglang.server, jobs(12, 13))
    compare(sglang, without=ALL)


def test_every_page_comes_out_of_its_recording_again(pages: Scraped, tmp_path: Path) -> None:
    """With the readings of SGLang's own page."""
    assert pages.assert_replayed(pages.save(tmp_path)) > 200 * len(pages.scrapes)
    told = b'kvscope_source_up{endpoint="http'
    assert any(told in scrape.page for scrape in pages.scrapes)


@pytest.mark.parametrize("reason", sorted(REASONS, key=lambda reason: reason.statements))
def test_the_reason_is_in_sglangs_source(sglang_python: Path, reason: Reason) -> None:
    reason.find(sglang_python, "sglang")
