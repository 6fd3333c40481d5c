"""The recent past of a running server: each moment as it was, step by step, and closed again."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvscope.replay import past as past_module
from kvscope.replay.past import past_router
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import bare_app
from tests.live.test_truth import Watched
from tests.replay.recorded import make_recorder
from tests.support.live_reader import LiveReader
from tests.support.waiting import wait_for

Blocks = tuple[list[int], list[int]]
"""References of each block, and the LRU."""


def noted(watched: Watched, moments: int) -> Iterator[tuple[float, Blocks]]:
    """A load, and the pool at moments of it, by Unix time."""
    assert watched.exporter.recorder is not None
    watched.exporter.recorder.write()  # begins a segment, which asks for the pool's state
    for _ in range(3):
        watched.disturb()
        watched.target.pipeline.drain()
    watched.exporter.render()  # notes that the state is known
    for _ in range(moments):
        for _ in range(watched.choice.randrange(1, 4)):
            watched.disturb()
        watched.target.pipeline.drain()
        time.sleep(0.002)
        pool = watched.engine.pool.snapshot()
        yield time.time(), (pool.ref_counts, pool.lru)
        time.sleep(0.002)


@pytest.fixture(scope="module")
def watched() -> Watched:
    return Watched(seed=17, recorder=make_recorder(None))


@pytest.fixture(scope="module")
def kept(watched: Watched) -> list[tuple[float, Blocks]]:
    return [*noted(watched, 60)]


@pytest.fixture(scope="module")
def url(watched: Watched, kept: list[tuple[float, Blocks]]) -> Iterator[str]:
    servers = {"": watched.exporter, "bare": Exporter([])}
    app = bare_app("x")
    app.include_router(past_router(servers.__getitem__))
    with HttpServer(app, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}/live/past"


def ask(url: str, **query: str | int) -> httpx.Response:
    return httpx.get(url, params=query, timeout=60)


def blocks_at(url: str, at: str) -> Blocks:
    reader = LiveReader(ask(f"{url}/snapshot", at=at, engine="demo/0").content)
    return reader.references, reader.lru


def test_every_moment_is_shown_as_it_was(url: str, kept: list[tuple[float, Blocks]]) -> None:
    span = ask(url).json()
    assert span["begins"] <= kept[0][0] < kept[-1][0] <= span["ends"]
    for moment, blocks in random.Random(1).sample(kept, 20):
        assert blocks_at(url, f"{moment:.6f}") == blocks
    assert len({str(blocks) for _, blocks in kept}) > 30, "the load changed next to nothing"


def test_steps_go_back_and_return(url: str, kept: list[tuple[float, Blocks]]) -> None:
    moments = [ask(url, at=f"{kept[30][0]:.6f}", step=-1).json()["at"]]
    for _ in range(10):
        moments.append(ask(url, at=moments[-1], step=-1).json()["at"])
    assert moments == sorted(set(moments), reverse=True)
    states = [blocks_at(url, at) for at in moments]
    for place in range(10, 0, -1):
        assert ask(url, at=moments[place], step=1).json()["at"] == moments[place - 1]
        assert blocks_at(url, moments[place - 1]) == states[place - 1]


def test_a_sequence_and_a_block_are_those_of_the_moment(
    url: str, kept: list[tuple[float, Blocks]]
) -> None:
    for moment, (references, _) in kept[::20]:
        at = f"{moment:.6f}"
        reader = LiveReader(ask(f"{url}/snapshot", at=at, engine="demo/0").content)
        for number, row in reader.sequences.items():
            asked = ask(f"{url}/sequence", at=at, engine="demo/0", id=number).json()
            assert asked["sequence"] == row
            assert sum(len(table) for table in asked["tables"].values()) == row["blocks"]
        block = ask(f"{url}/block", at=at, engine="demo/0", id=5).json()
        assert block["references"] == references[5]


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("", {"target": "bare"}, 404, "not recorded"),
        ("", {"at": "yesterday"}, 422, "at"),
        ("", {"at": "1e400"}, 422, "at"),
        ("/snapshot", {"at": "1.5", "engine": "other/0"}, 404, "no engine 'other/0'"),
        ("/api/nothing", {"at": "9999999999"}, 404, "not known"),
        ("/api/why", {"target": "bare", "at": "1"}, 404, "not recorded"),
        ("/block", {"at": "9999999999", "engine": "demo/0", "id": "999"}, 404, "not known"),
    ],
)
def test_what_cannot_be_shown_says_why(
    url: str, path: str, query: dict[str, str], status: int, said: str
) -> None:
    answer = ask(f"{url}{path}", **query)
    assert answer.status_code == status
    assert said in answer.text


def test_what_is_left_alone_is_closed(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(past_module, "KEPT_SECONDS", 0.2)
    monkeypatch.setattr(past_module.tempfile, "tempdir", str(tmp_path))
    watched = Watched(seed=19, recorder=make_recorder(None))
    app = bare_app("x")
    app.include_router(past_router(lambda _name: watched.exporter))
    with HttpServer(app, "127.0.0.1", 0) as server:
        opened = f"http://127.0.0.1:{server.port}/live/past"
        assert ask(opened).status_code == 200
        assert [*tmp_path.iterdir()]
        wait_for(lambda: not [*tmp_path.iterdir()], "its file is gone")
        assert ask(opened).status_code == 200, "and it can be opened again"
