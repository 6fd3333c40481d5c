"""Contents of tiers: bounds, clears, gaps, contents that come back, impossible stores."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import EngineEvent, NamesCleared, NamesRemoved, NamesStored
from kvscope_events.vocabulary import Tier
from kvscope_exporter.state import tiers as module
from kvscope_exporter.state.tiers import SPURIOUS_BLOCKS, TierContent, Tiers
from tests.exporter.stream import batch_of, block_hash


def names(*blocks: int) -> list[bytes]:
    return [block_hash(block) for block in blocks]


def stored(*blocks: int, tier: Tier = "device") -> NamesStored:
    return NamesStored(tier, names(*blocks), None, 16)


def removed(*blocks: int, tier: Tier = "device") -> NamesRemoved:
    return NamesRemoved(tier, names(*blocks))


def folded(*events: EngineEvent) -> Tiers:
    tiers = Tiers()
    tiers.on_batch(batch_of(*events))
    return tiers


def test_a_tier_is_there_once_it_was_named_and_the_device_always() -> None:
    assert set(Tiers().tiers) == {"device"}
    assert set(folded(stored(1, tier="host"), removed(1, tier="disk")).tiers) == {
        *("device", "host", "disk")
    }


def test_a_clear_is_of_one_tier_and_removes_nothing() -> None:
    tiers = folded(stored(1, 2), stored(1, tier="host"), removed(2), NamesCleared("device"))
    tiers.on_batch(batch_of(stored(1, 2)))
    device, host = tiers.tiers["device"], tiers.tiers["host"]
    assert (device.num_blocks, device.removed) == (2, 1)
    assert host.num_blocks == 1


def test_after_a_gap_a_tier_is_unknown_until_it_is_cleared() -> None:
    tiers = folded(stored(1), stored(1, tier="host"))
    tiers.on_gap()
    tiers.on_batch(batch_of(stored(2), removed(1), stored(3, tier="disk")))
    device = tiers.tiers["device"]
    assert not any(tier.known for tier in tiers.tiers.values())
    assert (device.stored, device.removed) == (2, 1)
    tiers.on_batch(batch_of(NamesCleared("device"), stored(4)))
    assert {name: tier.known for name, tier in tiers.tiers.items()} == {
        **{"device": True, "host": False, "disk": False}
    }
    assert device.num_blocks == 1


def test_more_names_than_are_remembered_are_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 10)
    tiers = folded(stored(*range(10), tier="remote"), stored(*range(20)))
    remote = tiers.tiers["remote"]
    assert remote.known
    tiers.on_batch(batch_of(stored(10, tier="remote"), stored(11, tier="remote")))
    assert not remote.known
    assert (remote.stored, len(remote.blocks)) == (12, 0)
    assert tiers.tiers["device"].known
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    tiers.on_batch(batch_of(NamesCleared("remote")))
    assert remote.known


def test_stores_that_are_announced_again_and_again_make_a_tier_unknown_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tiers = folded(stored(*range(100)))
    device = tiers.tiers["device"]
    announced = 0
    while device.known:
        tiers.on_batch(batch_of(stored(*range(50))))
        announced += 50
        assert announced < SPURIOUS_BLOCKS + 300
    assert device.is_announced_again
    assert "kv_cache_report_mode" in caplog.text
    tiers.on_batch(batch_of(NamesCleared("device"), stored(1)))
    assert not device.known, "the same requests will come again"
    assert device.stored == 100 + announced + 1


@given(
    st.lists(
        st.tuples(st.sampled_from("srcg"), st.lists(st.integers(0, 6), max_size=4)), max_size=40
    )
)
def test_any_history_is_what_a_plain_list_of_blocks_says(
    history: list[tuple[str, list[int]]],
) -> None:
    tier = TierContent(max_names=4)
    held: list[int] | None = []
    most = 0
    for action, blocks in history:
        if action == "s":
            tier.store(names(*blocks))
            for block in blocks if held is not None else ():
                assert held is not None
                held.append(block)
            if held is not None:
                most = max(most, len(set(held)))
                held = None if most > 4 else held
        elif action == "r":
            tier.remove(names(*blocks))
            for block in blocks if held is not None else ():
                assert held is not None
                if block in held:
                    held.remove(block)
        elif action == "c":
            tier.clear()
            held = []
            most = 0
        else:
            tier.on_gap()
            held = None
        tier.check()
        assert tier.known == (held is not None)
        if held is not None:
            assert (tier.num_blocks, len(tier.blocks)) == (len(held), len(set(held)))
