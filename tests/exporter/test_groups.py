"""A pool of several groups of layers: blocks by kind, and which kind refused what others had."""

from typing import Any

from kvscope_events.bus import Subscription
from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_events.names import group_of, in_group
from kvscope_events.producers import VLLM_SCHEDULER_EVENTS, in_order
from kvscope_exporter.catalogue.groups import GROUP_METRICS
from kvscope_exporter.state import Cache, Groups
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.exporter.machine import MACHINE
from tests.exporter.page import FIXED_CLOCK, batch_of, hello, make_exporter, put, value

FULL, WINDOW, STATE = range(3)
GROUPS = [
    CacheGroup("full_attention", 16),
    CacheGroup("sliding_window", 16, 33),  # a hit needs the last two blocks before its end
    CacheGroup("state", 32),
]
CREATED = PoolCreated(40, 16, 0, 1, groups=GROUPS, alignment=32)


def name(content: int, group: int = FULL) -> bytes:
    return in_group(content.to_bytes(16, "little"), group)


def path(blocks: int) -> list[bytes]:
    """The names of a lookup: those of the group of full attention."""
    return [name(block) for block in range(1, blocks + 1)]


def cached(group: int, *contents: int) -> list[EngineEvent]:
    """Blocks of a group that hold these; block numbers are the contents, plus ten for a group."""
    blocks = [10 * group + content for content in contents]
    return [
        BlocksAllocated(1, blocks, "prefill", group),
        BlocksCached(1, blocks, [name(content, group) for content in contents], None),
        BlocksReleased(1, blocks, [], [], "finished", group),
    ]


def evicted(group: int, *contents: int) -> BlocksEvicted:
    blocks = [10 * group + content for content in contents]
    return BlocksEvicted(blocks, [name(content, group) for content in contents], "capacity")


def asked(hit_blocks: int, alone: list[int], blocks: int = 6, **more: Any) -> PrefixLookup:
    tokens, names = 16 * blocks + 5, path(blocks)
    return PrefixLookup(7, tokens, names, hit_blocks, group_hit_tokens=alone, **more)


def folded(*events: EngineEvent) -> Cache:
    cache = Cache()
    cache.on_batch(batch_of(CREATED, *cached(FULL, 1, 2, 3, 4, 5, 6)))
    for event in events:
        cache.on_batch(batch_of(event, time_ns=5 * 10**9))
    return cache


def vetoed(cache: Cache) -> dict[tuple[str, ...], int]:
    return {key: tokens for key, tokens in cache.vetoes.vetoed_tokens.items() if tokens}


def test_names_say_their_group() -> None:
    assert [group_of(name(9, group)) for group in range(3)] == [0, 1, 2]
    assert in_group(name(9, STATE), FULL) == name(9)


def test_a_kind_whose_part_was_evicted_vetoes_and_its_tokens_are_regretted() -> None:
    kept = (*cached(WINDOW, 5, 6), *cached(STATE, 2, 6))
    cache = folded(*kept, evicted(WINDOW, 5), asked(2, [96, 32, 96]))
    assert cache.vetoes.hit_tokens == {
        "full_attention": 96,
        "sliding_window": 32,
        "state": 96,
    }
    assert vetoed(cache) == {("sliding_window", "evicted"): 64}
    assert cache.missed_blocks["vetoed"] == 4
    assert cache.regret.tokens == 64


def test_a_kind_that_kept_nothing_there_vetoes_without_regret() -> None:
    cache = folded(*cached(WINDOW, 5, 6), *cached(STATE, 2), asked(2, [96, 96, 32]))
    assert vetoed(cache) == {("state", "never_kept"): 64}
    assert cache.regret.tokens == 0


def test_a_state_that_ends_before_the_others_is_unaligned() -> None:
    cache = folded(*cached(WINDOW, 4, 5), *cached(STATE, 2, 4), asked(4, [80, 80, 64], 5))
    assert vetoed(cache) == {("state", "unaligned"): 16}


def test_full_attention_can_veto_as_well() -> None:
    cache = folded(
        *cached(WINDOW, 5, 6), *cached(STATE, 6), evicted(FULL, 3), asked(2, [32, 96, 96])
    )
    assert vetoed(cache) == {("full_attention", "evicted"): 64}
    assert cache.missed_blocks["evicted"] == 1
    assert cache.missed_blocks["unreachable"] == 3
    assert cache.regret.tokens == 64


def test_what_a_connector_loads_is_not_regretted() -> None:
    kept = (*cached(WINDOW, 5, 6), *cached(STATE, 2, 6))
    loaded = asked(2, [96, 32, 96], loaded_tokens=64)
    assert folded(*kept, evicted(WINDOW, 5), loaded).regret.tokens == 0


def test_hits_beyond_what_was_asked_for_are_cut() -> None:
    cache = folded(asked(2, [1 << 60, 32, 1 << 62]))
    assert vetoed(cache) == {("sliding_window", "never_kept"): 64}


def test_resumed_sequences_and_lookups_that_say_nothing_of_groups_do_not_count() -> None:
    cache = folded(asked(2, []))
    assert not cache.vetoes.known
    cache.on_batch(batch_of(asked(2, [96, 32, 96], resumed=True)))
    assert cache.vetoes.known
    assert not vetoed(cache)
    assert set(cache.vetoes.hit_tokens.values()) == {0}


def test_after_lost_events_the_reason_of_a_veto_is_unknown() -> None:
    cache = folded()
    cache.on_gap()
    cache.on_batch(batch_of(asked(2, [96, 32, 96])))
    assert vetoed(cache) == {("sliding_window", "unknown"): 64}


def test_blocks_are_counted_by_kind_until_their_content_goes() -> None:
    groups = Groups()
    groups.on_batch(batch_of(CREATED, *cached(FULL, 1, 2, 3), *cached(WINDOW, 1, 2)))
    groups.on_batch(batch_of(BlocksAllocated(2, [21], "decode", STATE)))
    groups.on_batch(batch_of(BlocksShared(2, [1, 2], "prefix_hit", FULL)))
    assert {key: count for key, count in groups.blocks.items() if count} == {
        ("full_attention", "active"): 2,
        ("full_attention", "cached"): 1,
        ("sliding_window", "cached"): 2,
        ("state", "active"): 1,
    }
    groups.on_batch(batch_of(evicted(WINDOW, 1), BlocksAllocated(3, [11], "decode", FULL)))
    groups.on_batch(batch_of(ContentDropped([1], [name(1)], "replaced")))
    groups.on_batch(batch_of(BlocksReleased(2, [], [21], [], "finished", STATE)))
    groups.check()
    assert groups.blocks["sliding_window", "cached"] == 1
    assert groups.blocks["full_attention", "active"] == 3
    assert groups.blocks["state", "active"] == 0


def test_a_reader_that_joins_late_learns_the_groups_from_the_snapshot() -> None:
    snapshot = PoolSnapshot(
        *(6, 16, 0, 1, [0, 1, 2, 0, 0, 1], [None, None, name(1), name(1, WINDOW), None, None], [3]),
        groups=GROUPS,
        block_groups=[None, STATE, FULL, WINDOW, None, None],
    )
    groups = Groups()
    groups.on_batch(batch_of(snapshot))
    groups.check()
    assert {key: count for key, count in groups.blocks.items() if count} == {
        ("full_attention", "active"): 1,
        ("sliding_window", "cached"): 1,
        ("state", "active"): 1,
    }  # the last block was handed out for no sequence: its group is not known


def observed() -> tuple[Exporter, Subscription]:
    """An observed vLLM's page."""
    subscription = Subscription(64)
    put(subscription, -1, 0, hello(server="vllm", tells=in_order(VLLM_SCHEDULER_EVENTS)))
    return in_process(subscription, machine=MACHINE, clock=FIXED_CLOCK), subscription


def test_the_page_has_the_kinds_of_the_pool() -> None:
    exporter, subscription = observed()
    kept = (*cached(FULL, 1, 2, 3, 4, 5, 6), *cached(WINDOW, 5, 6), *cached(STATE, 2))
    put(subscription, 0, 0, CREATED, *kept, asked(2, [96, 96, 32]), asked(0, [0, 0, 0], 1))
    for row, labels, expected in (
        ("kvscope_kv_group_blocks", {"kind": "full_attention", "state": "cached"}, 6),
        ("kvscope_kv_group_blocks", {"kind": "state", "state": "active"}, 0),
        ("kvscope_prefix_cache_group_hit_tokens_total", {"kind": "sliding_window"}, 96),
        ("kvscope_prefix_cache_vetoed_tokens_total", {"kind": "state", "cause": "never_kept"}, 64),
    ):
        assert value(exporter, row, **labels) == expected, row


def test_a_pool_of_one_group_has_none_of_these_families() -> None:
    for exporter, subscription in (observed(), make_exporter()):
        created = PoolCreated(40, 16, 0, 1, groups=GROUPS[:1], alignment=16)
        put(subscription, 0, 0, created, *cached(FULL, 1, 2), asked(2, []))
        assert value(exporter, "kvscope_kv_blocks", state="cached") == 2
        for row in GROUP_METRICS:
            assert value(exporter, row.name) is None, row.name
