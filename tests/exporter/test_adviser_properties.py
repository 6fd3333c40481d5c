"""Proposals for any facts: allowed by the headroom, few, and monotonic."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.adviser.facts import Facts, Room
from kvscope_exporter.adviser.pool_size import gain_of
from kvscope_exporter.adviser.rank import MAX_PROPOSALS, advise
from tests.exporter.advised import any_facts


@given(any_facts)
def test_no_proposal_is_forbidden_by_the_headroom(given: Facts) -> None:
    for proposal in advise(given).proposals:
        taken = proposal.price.memory_bytes
        if proposal.gain.errors_per_second_to is not None:
            left = proposal.price.headroom_left_bytes
            assert left is not None
            assert left >= min(room.margin_bytes for room in given.rooms)
        if proposal.option == "replicas" or not taken or taken <= 0:
            continue
        blocks = proposal.price.pool_blocks
        assert given.rooms, "what it takes is not known to be there"
        for room in given.rooms:
            bytes_more = blocks * room.bytes_per_block if blocks else taken
            left = room.free_bytes - room.largest_step_bytes - bytes_more
            assert left >= room.margin_bytes or not blocks
        if given.sizing is not None and proposal.option == "gpu_memory_utilization":
            budget = given.sizing.total_bytes - given.sizing.in_use_at_start_bytes
            assert proposal.proposed * given.sizing.total_bytes <= budget


@given(any_facts)
def test_at_most_five_each_with_its_option_and_another_value(given: Facts) -> None:
    proposals = advise(given).proposals
    assert len(proposals) <= MAX_PROPOSALS
    assert len({proposal.option for proposal in proposals}) == len(proposals)
    for proposal in proposals:
        assert proposal.proposed != proposal.current
        assert proposal.proposed > 0
        assert proposal.because
        assert proposal.assumes
        assert proposal.text


@given(any_facts, st.integers(250, 4000), st.integers(250, 4000))
def test_a_larger_pool_never_gains_less(given: Facts, one: int, other: int) -> None:
    small, large = sorted((one, other))
    gains = [gain_of(given, size).saved_tokens_per_second for size in (small, large)]
    assert gains[0] <= gains[1] + 1e-6


@given(any_facts)
def test_less_room_never_brings_a_larger_pool(given: Facts) -> None:
    def most(rooms: list[Room]) -> int:
        found = advise(replace(given, rooms=rooms)).proposals
        return max((p.price.pool_blocks for p in found if p.option != "replicas"), default=0)

    tighter = [replace(r, free_bytes=r.free_bytes // 2) for r in given.rooms]
    assert most(tighter) <= max(0, most(list(given.rooms)))
