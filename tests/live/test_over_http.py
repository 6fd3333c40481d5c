"""The live view over HTTP: doors, streams that end in time, engines without a map, odd viewers."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any

import httpx
import pytest

from kvscope.plan.form import plan_router
from kvscope.serving.acts import acts_router
from kvscope_events.events import PoolCreated
from kvscope_events.producers import SGLANG_EVENTS, in_order
from kvscope_exporter.live import hub as hub_module
from kvscope_exporter.live.broadcast import QUEUED_FRAMES, Viewer
from kvscope_exporter.paths import door_of
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.answers import answers_router
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.landing import ListedServer
from kvscope_exporter.web.live import live_router
from kvscope_exporter.web.metrics import bare_app, metrics_router
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import hello
from tests.live.test_truth import Watched
from tests.support.live_reader import LiveReader

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"


get = partial(httpx.get, timeout=30)
stream = partial(httpx.stream, timeout=30)


def app_of(exporter: Exporter) -> Any:
    app = bare_app("x")
    listed = [ListedServer("llama", exporter.presence, exporter)]
    app.include_router(live_router(lambda _name: exporter, lambda: listed, has_targets=False))
    app.include_router(answers_router(lambda _name: exporter))
    app.include_router(metrics_router(exporter))
    app.include_router(plan_router())
    return app


@pytest.fixture
def watched() -> Watched:
    return Watched(seed=7)


@pytest.fixture
def url(watched: Watched) -> Iterator[str]:
    with HttpServer(app_of(watched.exporter), "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}"


def frames(lines: Iterator[str]) -> Iterator[tuple[str, bytes]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ").encode()


def test_a_stream_and_a_snapshot_give_the_pool(watched: Watched, url: str) -> None:
    watched.view.close()
    with stream("GET", f"{url}/live/events", params={"engine": "demo/0"}) as opened:
        assert opened.headers["content-type"].startswith("text/event-stream")
        events = frames(opened.iter_lines())
        reader = LiveReader(get(f"{url}/live/snapshot").content)
        for _ in range(12):
            for _ in range(4):
                watched.disturb()
            number = watched.engine.pool.snapshot()
            while reader.references != number.ref_counts or reader.lru != number.lru:
                name, data = next(events)
                assert name == "frame"
                reader.apply(data)
    assert reader.num_applied > 3
    live = next(s for s in watched.engine.live if s.block_table)
    document = get(f"{url}/live/sequence", params={"id": live.sequence_id}).json()
    assert document["tables"]["0"] == live.block_table
    block = get(f"{url}/live/block", params={"id": live.block_table[0]}).json()
    assert live.sequence_id in block["owners"]
    assert block["references"] == watched.engine.pool.snapshot().ref_counts[live.block_table[0]]
    assert block["events"][0][1] in ("BlocksAllocated", "BlocksShared", "BlocksCached")


def test_every_viewer_gets_the_same_frames_and_a_new_one_disturbs_none(
    watched: Watched, url: str
) -> None:
    seen: list[list[int]] = [[], []]

    def look(index: int) -> None:
        with stream("GET", f"{url}/live/events") as opened:
            for _, data in frames(opened.iter_lines()):
                seen[index].append(json.loads(data)["frame"])
                if len(seen[index]) >= 8:
                    return

    threads = [threading.Thread(target=look, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        watched.disturb()
        get(f"{url}/live/snapshot")
        time.sleep(0.02)
    for numbers in seen:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none is missing"


def test_a_viewer_that_does_not_read_is_bounded_and_hears_that_it_is_behind() -> None:
    async def look() -> list[bytes]:
        viewer = Viewer()
        for number in range(10 * QUEUED_FRAMES):
            viewer.put(b"%d" % number)
        events = viewer.events()
        heard = [await anext(events) for _ in range(3)]
        assert len(viewer._waiting) <= QUEUED_FRAMES
        assert viewer.times_behind > 1
        await events.aclose()
        return heard

    heard = asyncio.run(look())
    assert heard[1].startswith(b"event: behind")


def test_there_is_a_limit_on_viewers(
    watched: Watched, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MAX_VIEWERS", 1)
    with stream("GET", f"{url}/live/events") as opened:
        lines = opened.iter_lines()  # kept: without it the connection is closed
        next(lines)
        with stream("GET", f"{url}/live/events") as refused:
            assert refused.status_code == 503


def test_a_server_that_ends_does_not_wait_for_viewers(watched: Watched) -> None:
    with HttpServer(app_of(watched.exporter), "127.0.0.1", 0) as server:
        opened = stream("GET", f"http://127.0.0.1:{server.port}/live/events")
        lines = opened.__enter__().iter_lines()
        next(lines)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 1.0
        list(lines)  # complete, without an error


def test_data_is_behind_the_door_of_the_pages_and_the_page_itself_is_not(
    watched: Watched,
) -> None:
    access = AccessConfig(pages=Credentials(["secret"]))
    with HttpServer(Access(app_of(watched.exporter), access), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        for path in ("/live", "/live/static/main.js", "/live/static/style.css"):
            assert get(f"{url}{path}").status_code == 200
        for path in ("engines", "snapshot", "events", "sequence?id=1", "block?id=1", "other"):
            assert get(f"{url}/live/{path}").status_code == 401, path
        key = {"Authorization": "Bearer secret"}
        assert get(f"{url}/live/snapshot", headers=key).status_code == 200
    assert door_of("GET", "/live/static/main.js") == "shell"
    assert door_of("POST", "/live/events") == "control"


def test_only_a_demo_can_be_had_to_do_something_and_only_through_the_door_of_changes(
    url: str,
) -> None:
    assert get(f"{url}/live/engines").json()["acts"] == []
    assert httpx.post(f"{url}/api/demo/fill", json={}, timeout=30).status_code == 404
    app = bare_app("demo")
    app.include_router(acts_router())
    with HttpServer(Access(app, AccessConfig()), "127.0.0.1", 0) as server:
        act = f"http://127.0.0.1:{server.port}/api/demo/fill"
        foreign = {"Origin": "http://elsewhere.example"}
        assert httpx.post(act, json={}, headers=foreign, timeout=30).status_code == 403
        assert httpx.post(f"{act}er", json={}, timeout=30).status_code == 404
    keys = AccessConfig(api=Credentials(["secret"]))
    with HttpServer(Access(app, keys), "127.0.0.1", 0) as server:
        act = f"http://127.0.0.1:{server.port}/api/demo/fill"
        assert httpx.post(act, json={}, timeout=30).status_code == 401


def test_an_engine_that_does_not_exist_is_named_with_those_that_do(url: str) -> None:
    for path in ("snapshot", "events", "sequence?id=1"):
        joint = "&" if "?" in path else "?"
        answer = get(f"{url}/live/{path}{joint}engine=qwen/1")
        assert answer.status_code == 404
        assert answer.text == "no engine 'qwen/1' here now; known: demo/0\n"
    assert get(f"{url}/live/sequence?id=9999").status_code == 404
    assert get(f"{url}/live/block?id=9999").status_code == 404
    assert get(f"{url}/live/block?id=x").status_code == 422


def test_a_counted_pool_has_figures_and_no_cells() -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        0,
        1,
        hello(server="sglang", tells=in_order(SGLANG_EVENTS)),
        PoolCreated(40, 16, 2048),
    )
    with HttpServer(app_of(exporter), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/live"
        (row,) = get(f"{url}/engines").json()["servers"][0]["engines"]["engines"]
        assert row["map"] == "counted"
        assert "no map" in row["note"]
        reader = LiveReader(get(f"{url}/snapshot").content)
    assert reader.pool["map"] == "counted"
    assert reader.pool["num_blocks"] == 40
    assert reader.columns == {}


def test_a_server_whose_page_alone_is_read_says_what_there_is_instead() -> None:
    exporter = Exporter([])
    with HttpServer(app_of(exporter), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/live"
        (row,) = get(f"{url}/engines").json()["servers"]
        assert row["engines"]["engines"] == []
        assert "only the server's own metrics page" in row["engines"]["note"]
        answer = get(f"{url}/snapshot")
        assert (answer.status_code, answer.text) == (404, row["engines"]["note"] + "\n")


def test_no_script_of_the_page_makes_markup_of_text_or_loads_from_elsewhere() -> None:
    for file in (files("kvscope_exporter.live") / "page").iterdir():
        text = file.read_text()
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc",
            text,
        )
        assert not found, (file.name, found)
        addresses = set(re.findall(r"https?://[^\s'\"]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, file.name
        assert "style=" not in text, "inline styles are refused by the policy"
