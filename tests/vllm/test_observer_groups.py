"""The observer's groups without a vLLM: whose blocks were handed out, what each group would hit."""

import types
from operator import attrgetter
from typing import Any

import pytest

from kvscope_events.events import BlocksAllocated, BlocksReleased, BlocksShared
from kvscope_events.observers.vllm.groups import BlockGroups, GroupHits
from kvscope_events.observers.vllm.pool import freed
from kvscope_events.observers.vllm.snapshot import Counts

FULL, STATE = 0, 1


def block(number: int, references: int = 1, block_hash: bytes | None = None) -> Any:
    return types.SimpleNamespace(
        block_id=number, ref_cnt=references, block_hash=block_hash, is_null=not number
    )


NULL = block(0)
REQUEST = types.SimpleNamespace(request_id="r")


def manager(*held: list[Any], pool: list[Any] | None = None) -> Any:
    return types.SimpleNamespace(
        get_blocks=lambda request_id: types.SimpleNamespace(blocks=held),
        block_pool=types.SimpleNamespace(blocks=pool),
    )


def test_blocks_get_their_group_from_the_lists_of_their_request() -> None:
    groups = BlockGroups(8)
    allocated = [BlocksAllocated(1, [n], "prefill") for n in (3, 4)]
    share = BlocksShared(1, [4], "cow")
    for event in allocated:
        groups.allocated(REQUEST, event)
    groups.copied(REQUEST, share)
    groups.place(manager([block(1), block(2), block(3)], [NULL, NULL, block(4)]))
    assert [event.group for event in allocated] == [FULL, STATE]
    assert share.group == STATE
    assert not groups.has_unplaced


def test_a_copy_that_only_the_cache_holds_is_in_the_group_of_its_name() -> None:
    groups, event = BlockGroups(8), BlocksAllocated(1, [5], "decode")
    groups.allocated(REQUEST, event)
    pool = [block(n, block_hash=bytes(35) + b"\x01" if n == 5 else None) for n in range(8)]
    groups.place(manager([block(1)], [block(2)], pool=pool))
    assert event.group == STATE


def test_blocks_handed_out_for_no_request_have_no_group() -> None:
    groups = BlockGroups(8)
    groups.of_block[5] = STATE
    groups.allocated(None, BlocksAllocated(None, [5], "prefill"))
    assert groups[5] is None
    assert not groups.has_unplaced


def test_references_given_back_at_once_are_reported_by_group_and_the_last_of_a_block_last() -> None:
    """Ends of copies are freed in one call, whatever their groups; a block may be in it twice."""
    groups = BlockGroups(8)
    groups.of_block[1] = groups.of_block[2] = FULL
    groups.of_block[3] = STATE
    observer: Any = types.SimpleNamespace(
        foreign_blocks=False, releasing=(None, "cow"), groups=groups, counts=Counts(3, 0, 5)
    )
    observer.buffer, observer.hash_of = [], attrgetter("block_hash")
    name = bytes(36)
    first, second, state = (block(n, references=0, block_hash=name) for n in (1, 2, 3))
    freed(observer, [first, state, second, state, first], None, (), {})
    assert observer.buffer == [
        BlocksReleased(None, [], [], [1], "cow", FULL),
        BlocksReleased(None, [], [], [3], "cow", STATE),
        BlocksReleased(None, [2], [], [], "cow", FULL),
        BlocksReleased(None, [3], [], [], "cow", STATE),
        BlocksReleased(None, [1], [], [], "cow", FULL),
    ]
    assert observer.counts.as_tuple() == (0, 3, 0)


class Coordinator:
    """Answers like vLLM's."""

    def __init__(self, *lengths: Any) -> None:
        self.lengths, self.asked = lengths, 0

    def find_longest_cache_hit_per_group(
        self, block_hashes: list[bytes], max_cache_hit_length: int
    ) -> tuple[Any, tuple[Any, ...]]:
        self.asked += 1
        return (), self.lengths


class OtherCoordinator(Coordinator):
    def find_longest_cache_hit_per_group(self, request: Any) -> Any:  # type: ignore[override]
        raise AssertionError("asked in a way that it does not know")


def hits(coordinator: Any, *cacheable: bool) -> GroupHits:
    specs = [types.SimpleNamespace(prefix_cacheable=one, block_size=16) for one in cacheable]
    groups = [types.SimpleNamespace(kv_cache_spec=spec) for spec in specs]
    configuration = types.SimpleNamespace(kv_cache_groups=groups)
    return GroupHits(types.SimpleNamespace(coordinator=coordinator, kv_cache_config=configuration))


ASKS = types.SimpleNamespace(block_hashes=[b"x"], num_tokens=101)


def asked(one: GroupHits) -> list[int]:
    one.expect(ASKS, 32)
    one.ask()
    return one.take()


def test_each_admission_is_asked_about_once() -> None:
    coordinator = Coordinator(96, 32)
    one = hits(coordinator, True, True)
    assert asked(one) == [96, 32]
    one.ask()  # blocks for a running request
    assert one.take() == []
    assert coordinator.asked == 1


def test_vllm_is_not_asked_where_no_group_can_have_found_more_than_all() -> None:
    coordinator = Coordinator(96, 96)
    one = hits(coordinator, True, True)
    one.expect(ASKS, 96)
    one.ask()
    assert one.take() == [96, 96]
    assert coordinator.asked == 0
    one.expect(ASKS, 80)
    one.ask()
    assert one.take() == [96, 96]
    assert coordinator.asked == 1


def test_an_attempt_that_finds_no_room_is_forgotten() -> None:
    coordinator = Coordinator(96, 32)
    one = hits(coordinator, True, True)
    one.expect(ASKS, 32)
    assert one.take() == []
    one.ask()
    assert coordinator.asked == 0


def test_a_group_of_scratch_memory_refuses_nothing() -> None:
    assert asked(hits(Coordinator(96, 0, 32), True, False, True)) == [96, 96, 32]


@pytest.mark.parametrize("lengths", [(96,), ("many", 32), (96, 32, 0)])
def test_an_answer_of_another_form_ends_the_questions_and_nothing_else(
    lengths: tuple[Any, ...],
) -> None:
    coordinator = Coordinator(*lengths)
    one = hits(coordinator, True, True)
    assert asked(one) == asked(one) == []
    assert coordinator.asked == 1


@pytest.mark.parametrize("coordinator", [OtherCoordinator(), object()])
def test_a_coordinator_that_cannot_be_asked_in_the_known_way_is_not_asked(coordinator: Any) -> None:
    assert asked(hits(coordinator, True, True)) == []
