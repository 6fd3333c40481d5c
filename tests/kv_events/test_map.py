"""The live map of a stream of KV events: a cell for each name in the device's tier."""

from pathlib import Path

import pytest

from kvscope_events.events import PoolCreated
from kvscope_exporter.live import named
from kvscope_exporter.live.hub import Hub
from kvscope_exporter.state import Tiers
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import make_exporter, put
from tests.kv_events.dialects import Cleared, Removed, Stored, one
from tests.kv_events.publisher import Publish
from tests.kv_events.watching import Watched, watched
from tests.support.live_reader import CACHED, FREE, FollowedView


def names_in(there: Watched) -> set[bytes]:
    (target,) = there.exporter.targets
    return set(target.folds[Tiers].tiers["device"].blocks)


def test_the_cells_are_the_names_of_the_devices_tier(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    publisher.say(one(1), Stored((2, 3), 1), Stored((1, 2), medium="CPU"))
    with watched(tmp_path, model_name="m") as there:
        there.expect(3)
        followed = FollowedView(there.exporter.targets[0])
        assert followed.names().keys() == names_in(there)
        assert followed.reader.pool == {
            **{"map": "names", "names": 3, "num_blocks": 0, "reserved": 0, "block_size": 0},
            **{"bytes_per_block": 0, "active": None, "cached": None, "free": None},
            "imbalance": None,
        }
        assert followed.reader.head["figures"] is None
        many = tuple(range(10, 10 + 2 * named.LEAST_CELLS))
        publisher.say(Stored(many, 3), one(1), Removed((2,)))
        there.expect(3 + len(many) + 1 - 1)
        shown = followed.names()
        assert set(shown.values()) == {CACHED}
        assert shown.keys() == names_in(there)
        read = followed.reader
        assert followed.reader.pool["block_size"] == 2
        cells = enumerate(read.columns["cell"])
        roots = {read.columns["prefix"][number] for number, cell in cells if cell != FREE}
        assert len(roots) == 1, "all continue the first one"
        publisher.say(Removed((1,)))
        there.expect(2 + len(many))
        assert followed.names().keys() == names_in(there), "one of two copies is left"
        publisher.say(Cleared())
        there.expect(0)
        assert followed.names() == {}


def test_it_is_unknown_while_messages_are_missing(tmp_path: Path, publish: Publish) -> None:
    publisher = publish(replay=False)
    with watched(tmp_path, replay=False, model_name="m") as there:
        publisher.joined()
        publisher.say(Cleared(), one(1))
        there.expect(1)
        followed = FollowedView(there.exporter.targets[0])
        publisher.say(one(2), lost=True)
        publisher.say(one(3))
        there.expect(None, known=False)
        assert followed.read().pool["map"] == "unknown"
        publisher.say(Cleared(), one(4))
        there.expect(1)
        assert followed.names().keys() == names_in(there)


def test_a_stream_that_never_removes_anything_takes_a_bounded_amount_of_memory(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "MOST_CELLS", 100)
    publisher = publish()
    with watched(tmp_path, model_name="m") as there:
        publisher.say(one(1))
        there.expect(1)
        followed = FollowedView(there.exporter.targets[0])
        for first in range(10, 410, 20):
            publisher.say(Stored(tuple(range(first, first + 20))))
        there.expect(401)
        assert len(followed.view.following.named) <= 100


def test_the_engine_is_listed_with_what_its_map_lacks(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    publisher.say(one(1))
    with watched(tmp_path, model_name="m") as there:
        there.expect(1)
        hub = Hub(lambda _: there.exporter)
        (row,) = hub.engines("").engines
        assert (row.key, row.map) == ("m/0", "names")
        assert "neither sequences nor steps are known" in row.note
        assert hub.broadcast("", "").snapshot().startswith(b"KVSLIVE1")
        assert hub.broadcast("", "m/0").block(0) is not None
        assert hub.broadcast("", "m/0").sequence(1) is None


def test_the_map_of_an_observed_engine_comes_before_that_of_its_names(
    tmp_path: Path, publish: Publish
) -> None:
    publisher = publish()
    publisher.say(one(1))
    exporter, subscription = make_exporter()
    put(subscription, 0, 1, PoolCreated(8, 16, 2048))
    with watched(tmp_path, model_name="demo") as there:
        there.expect(1)
        both = Exporter([*there.exporter.targets, *exporter.targets])
        (row,) = Hub(lambda _: both).engines("").engines
    assert (row.key, row.map, row.note) == ("demo/0", "blocks", "")
