"""The host tier of an engine that reports its pool's blocks as well, on its page."""

from kvscope_events.events import (
    EngineEvent,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    TierCreated,
)
from kvscope_events.producers import OFFLOAD_EVENTS, VLLM_EVENTS
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import hello, make_exporter, value
from tests.exporter.scenario import A, B, C
from tests.exporter.stream import put, step

VLLM = hello(server="vllm", tells=sorted(VLLM_EVENTS | OFFLOAD_EVENTS), keeps_blocks=True)
HOST = TierCreated("host", 2, 4, 4096)


def watched(*events: EngineEvent) -> Exporter:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, VLLM, *events, step())
    return exporter


def of_host(exporter: Exporter, name: str, **labels: str) -> float | None:
    return value(exporter, f"kvscope_kv_tier_{name}", tier="host", **labels)


def test_hits_of_each_tier_are_those_of_first_lookups() -> None:
    exporter = watched(
        PoolCreated(9, 4, 4096),
        HOST,
        PrefixLookup(1, 13, [A, B, C], 1, False, 8, "host"),
        PrefixLookup(1, 13, [A, B, C], 1, True, 8, "host"),
        PrefixLookup(2, 13, [A, B, C], 1, False, 4),
    )
    assert value(exporter, "kvscope_kv_tier_hit_tokens_total", tier="device") == 8
    assert of_host(exporter, "hit_tokens_total") == 8
    assert value(exporter, "kvscope_kv_tier_hit_tokens_total", tier="other") == 4
    assert of_host(exporter, "queried_tokens_total") == 2 * (13 - 4)


def test_stored_and_removed_blocks_are_those_of_the_host() -> None:
    exporter = watched(
        PoolCreated(9, 4, 4096),
        HOST,
        NamesStored("host", [A, B], None, 4),
        NamesRemoved("host", [A, B]),
        NamesStored("host", [A, C], None, 4),
        NamesRemoved("host", [A]),
    )
    assert of_host(exporter, "stored_blocks_total") == 4
    assert of_host(exporter, "removed_blocks_total") == 3
    assert of_host(exporter, "blocks") == 1
    assert of_host(exporter, "used_ratio") == 0.5
    assert value(exporter, "kvscope_kv_tier_blocks", tier="device") is None, "that is the pool"


def test_content_from_before_an_exporter_came_is_not_known_until_a_clear() -> None:
    exporter, subscription = make_exporter()
    snapshot = PoolSnapshot(9, 4, 4096, 0, [0] * 9, [None] * 9, [])
    again = TierCreated("host", 2, 4, 4096, empty=False)
    put(subscription, 0, 0, VLLM, snapshot, again, NamesStored("host", [A], None, 4), step())
    assert of_host(exporter, "blocks") is None
    put(subscription, 1, 0, NamesCleared("host"), NamesStored("host", [B], None, 4), step())
    assert of_host(exporter, "blocks") == 1


def test_a_server_without_a_tier_has_only_its_device() -> None:
    exporter, subscription = make_exporter()
    tells = sorted(VLLM_EVENTS)
    put(subscription, 0, 0, hello(server="vllm", tells=tells), PoolCreated(9, 4, 4096), step())
    assert value(exporter, "kvscope_kv_tier_hit_tokens_total", tier="device") == 0
    for name in ("hit_tokens_total", "stored_blocks_total"):
        assert of_host(exporter, name) is None
