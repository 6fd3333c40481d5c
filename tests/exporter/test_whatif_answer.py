"""`GET /api/whatif`: the curves as people read them, or the reason without one."""

from typing import Any

import msgspec
import pytest

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    CacheGroup,
    PoolCreated,
    PrefixLookup,
)
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.answers.whatif import WHATIF
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.machine import NOW_NS
from tests.exporter.page import hello, make_exporter
from tests.exporter.scenario import A, B, C
from tests.exporter.stream import put, step

SECOND_NS = 1_000_000_000


def asked(exporter: Exporter) -> dict[str, Any]:
    """The only engine's reply, as JSON has it."""
    exporter.render()  # nothing runs here that reads what was put
    (engine,) = msgspec.json.decode(msgspec.json.encode(exporter.answer(WHATIF)))["engines"]
    reply: dict[str, Any] = engine
    return reply


def test_a_size_is_told_in_blocks_and_with_what_it_would_save() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, NOW_NS - 2 * SECOND_NS, PoolCreated(10, 4, 4096, 1, {"total": 65_536}))
    events = [
        PrefixLookup(0, 9, [A, B], 0),
        BlocksAllocated(0, [1, 2, 3], "prefill"),
        BlocksCached(0, [1, 2], [A, B], None),
        PrefixLookup(1, 9, [A, C], 1),
    ]
    put(subscription, 1, NOW_NS - SECOND_NS, *events, step())
    answer = asked(exporter)["answer"]
    assert (answer["block_tokens"], answer["pool_blocks"]) == (4, 9)
    assert answer["pool_bytes"] == 9 * 4096
    assert answer["device_bytes"] == 65_536
    assert [curve["window"] for curve in answer["curves"]] == ["5m", "1h", "start"]
    since_start = answer["curves"][-1]
    assert since_start["seconds"] == pytest.approx(2)
    (present,) = [point for point in since_start["points"] if point["scale"] == 1]
    assert present == {
        "scale": 1.0,
        "capacity_blocks": 9,
        "capacity_bytes": 9 * 4096,
        "device_ratio": 9 * 4096 / 65_536,
        "hit_ratio": 0.25,
        "hit_blocks": 1,
        "queried_blocks": 4,
        "saved_tokens_per_second": pytest.approx(4 / 2),
        "is_lower_bound": False,
        "is_upper_bound": False,
        "known_seconds": pytest.approx(2),
    }
    infinite = since_start["points"][-1]
    assert (infinite["scale"], infinite["capacity_blocks"]) == (None, None)
    assert answer["self_check"] == {"queried_blocks": 4, "error_blocks": 0, "error_ratio": 0.0}
    assert all(sentence.endswith(".") for sentence in answer["not_modelled"])


def test_a_tier_on_the_host_is_told_with_what_it_would_load_and_store() -> None:
    """A and B are evicted from a pool of two blocks; a tier of four has them both."""
    exporter, subscription = make_exporter()
    put(subscription, 0, NOW_NS - 2 * SECOND_NS, PoolCreated(3, 4, 4096, 1))
    events = [
        PrefixLookup(0, 9, [A, B], 0),
        BlocksAllocated(0, [1, 2], "prefill"),
        BlocksCached(0, [1, 2], [A, B], None),
        BlocksReleased(0, [2, 1], [], [], "finished"),
        BlocksEvicted([2, 1], [B, A], "capacity"),
        BlocksAllocated(1, [1], "prefill"),
        BlocksCached(1, [1], [C], None),
        BlocksReleased(1, [1], [], [], "finished"),
        PrefixLookup(2, 9, [A, B], 0),
        step(prefill_tokens=12, duration_ns=SECOND_NS),
    ]
    put(subscription, 1, NOW_NS - SECOND_NS, *events)
    answer = asked(exporter)["answer"]
    tiers = {tier["size_blocks"]: tier for tier in answer["curves"][-1]["host_tiers"]}
    assert (min(tiers), max(tiers)) == (2, 8), "none is smaller than the pool"
    assert (tiers[2]["gained_tokens_per_second"], tiers[2]["loaded_bytes_per_second"]) == (0, 0)
    assert tiers[4] == {
        "size_blocks": 4,
        "size_bytes": 4 * 4096,
        "hit_ratio": 0.5,
        "gained_tokens_per_second": pytest.approx(2 * 4 / 2),
        "loaded_bytes_per_second": pytest.approx(2 * 4096 / 2),
        "stored_bytes_per_second": pytest.approx((3 - 2) * 4096 / 2),
        "is_lower_bound": False,
    }
    assert answer["offloading"] == {
        "bytes_per_token": 1024,
        "computed_tokens_per_second": pytest.approx(12),
        "pays_above_bytes_per_second": pytest.approx(12 * 1024),
        "measured_load_bytes_per_second": None,
        "tier_blocks": None,
    }


def test_a_pool_without_bytes_or_lookups_has_no_ratios() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), step())
    answer = asked(exporter)["answer"]
    assert answer["pool_bytes"] is None
    assert answer["device_bytes"] is None
    point = answer["curves"][-1]["points"][0]
    assert (point["hit_ratio"], point["capacity_bytes"], point["device_ratio"]) == (None,) * 3
    assert answer["self_check"]["error_ratio"] is None


def test_an_engine_without_a_prefix_cache_says_so() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, hello(enable_prefix_caching=False), PoolCreated(9, 4, 0), step())
    assert asked(exporter)["unknown"] == "this engine runs without a prefix cache"
    assert "whatif" not in exporter.render()[0].decode()


@pytest.mark.parametrize(
    "groups",
    [
        [CacheGroup("sliding_window", 4, 128)],
        [CacheGroup("full_attention", 4), CacheGroup("full_attention", 8)],
    ],
)
def test_other_pools_are_not_modelled(groups: list[CacheGroup]) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0, groups=groups), PrefixLookup(0, 9, [], 0), step())
    assert "sliding window" in asked(exporter)["unknown"]
    assert "whatif" not in exporter.render()[0].decode()


def test_it_is_asked_at_its_name() -> None:
    assert QUESTIONS["whatif"] is WHATIF
