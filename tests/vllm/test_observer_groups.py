"""The observer's groups without a vLLM: whose blocks were handed out, what each group would hit."""

import types
from operator import attrgetter
from typing import Any

import pytest

from kvscope_events.events import BlocksReleased
from kvscope_events.observers.vllm.facts import HandedOut, Names, SharedBlocks, finisher
from kvscope_events.observers.vllm.group_hits import GroupHits
from kvscope_events.observers.vllm.groups import BlockGroups
from kvscope_events.observers.vllm.pool import freed
from kvscope_events.observers.vllm.snapshot import Counts

FULL, STATE = 0, 1


def block(number: int, references: int = 1, block_hash: bytes | None = None) -> Any:
    return types.SimpleNamespace(
        block_id=number, ref_cnt=references, block_hash=block_hash, is_null=not number
    )


NULL = block(0)
REQUEST = types.SimpleNamespace(request_id="r")


def manager(*held: list[Any]) -> Any:
    return types.SimpleNamespace(
        coordinator=types.SimpleNamespace(get_blocks=lambda request_id: held)
    )


def test_blocks_get_their_group_from_the_lists_of_their_request() -> None:
    groups = BlockGroups(8)
    handed_out = [HandedOut(1, "prefill", one, None) for one in ([block(2), block(3)], block(4))]
    share = SharedBlocks(1, "cow", block(4))
    for fact in handed_out:
        groups.noted(REQUEST, fact)
    groups.noted(REQUEST, share)
    groups.place(manager([block(1), block(2), block(3)], [NULL, NULL, block(4)]))
    assert [fact.group for fact in handed_out] == [FULL, STATE]
    assert groups.of_block[2:5] == [FULL, FULL, STATE]
    assert share.group == STATE
    assert not groups.has_unplaced


def test_a_block_behind_which_holes_lie_is_found_in_its_list() -> None:
    groups, fact = BlockGroups(8), HandedOut(1, "decode", block(3), None)
    groups.noted(REQUEST, fact)
    groups.place(manager([block(1)], [block(2), block(3), NULL]))
    assert fact.group == STATE


def test_a_copy_that_only_the_cache_holds_is_in_the_group_of_its_name() -> None:
    copy = block(5, block_hash=bytes(35) + b"\x01")
    groups, fact = BlockGroups(8), HandedOut(1, "decode", copy, None)
    groups.noted(REQUEST, fact)
    groups.place(manager([block(1)], [block(2)]))
    assert fact.group == STATE


def test_blocks_handed_out_for_no_request_have_no_group() -> None:
    groups = BlockGroups(8)
    groups.of_block[5] = STATE
    groups.noted(None, HandedOut(None, "prefill", block(5), None))
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
    observer.hashes_of = lambda blocks: [block.block_hash for block in blocks]
    name = bytes(36)
    first, second, state = (block(n, references=0, block_hash=name) for n in (1, 2, 3))
    freed(observer, [first, state, second, state, first], None, (), {})
    assert finisher(Names(2))(observer.buffer) == [
        BlocksReleased(None, [], [], [1], "cow", FULL),
        BlocksReleased(None, [], [], [3], "cow", STATE),
        BlocksReleased(None, [2], [], [], "cow", FULL),
        BlocksReleased(None, [3], [], [], "cow", STATE),
        BlocksReleased(None, [1], [], [], "cow", FULL),
    ]
    assert observer.counts.as_tuple() == (0, 3, 0)


def test_an_event_made_later_says_what_was_so_when_it_was_noted() -> None:
    observer: Any = types.SimpleNamespace(
        foreign_blocks=False, releasing=(1, "finished"), groups=None, counts=Counts(2, 0, 2)
    )
    observer.buffer, observer.hash_of = [], attrgetter("block_hash")
    observer.hashes_of = lambda blocks: [block.block_hash for block in blocks]
    named, unnamed = block(1, references=0, block_hash=bytes(36)), block(2, references=0)
    freed(observer, [named, unnamed], None, (), {})
    named.block_hash, unnamed.block_hash, unnamed.ref_cnt = None, bytes(36), 1
    (event,) = finisher(Names(1))(observer.buffer)
    assert event == BlocksReleased(1, [1], [2], [], "finished")


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


class FullAttentionManager:
    block_size, kv_cache_spec = 16, types.SimpleNamespace(block_size=16)


class SlidingWindowManager:
    block_size, kv_cache_spec = 16, types.SimpleNamespace(block_size=16, sliding_window=33)


@pytest.mark.parametrize(
    ("group", "place", "asks"),
    [
        (FULL, 2, True),
        (FULL, 3, False),  # a prefix needs the block before it, too
        (STATE, 1, False),  # within the hit
        (STATE, 2, True),
        (STATE, 3, False),  # a window needs two blocks, so it has the one before or behind
        (STATE, 4, True),
        (STATE, 6, False),  # the last token is always computed
    ],
)
def test_vllm_is_asked_where_a_block_lies_that_a_longer_hit_needs(
    group: int, place: int, asks: bool
) -> None:
    coordinator: Any = Coordinator(96, 32)
    coordinator.enable_partial_hash_hits, coordinator.eagle_group_ids = False, set()
    coordinator.single_type_managers = (FullAttentionManager(), SlidingWindowManager())
    digests = [bytes([number]) * 32 for number in range(7)]
    known = {digests[place] + group.to_bytes(4, "big"): block(9)}
    pool = types.SimpleNamespace(
        hash_block_size=16, cached_block_hash_to_block=types.SimpleNamespace(_cache=known)
    )
    configuration = types.SimpleNamespace(
        kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=None) for _ in range(2)]
    )
    one = GroupHits(
        types.SimpleNamespace(
            coordinator=coordinator, kv_cache_config=configuration, block_pool=pool
        )
    )
    one.expect(types.SimpleNamespace(block_hashes=digests, num_tokens=101), 32)
    one.ask()
    assert one.take() == ([96, 32] if asks else [32, 32])
    assert coordinator.asked == asks


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
