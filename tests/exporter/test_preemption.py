"""The cost of a preemption and the takers of its blocks, as far as reported."""

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
)
from kvscope_events.vocabulary import PreemptionCause
from kvscope_exporter.state.preemption import UNATTRIBUTED, Preemption, Victim
from kvscope_exporter.state.preemption.fold import HISTORY
from kvscope_exporter.state.preemption.whereabouts import MAX_TAKERS
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import batch_of, block_hash, ended, step

NO_BLOCKS = ("recompute", "out_of_blocks")
NO_MEMORY = ("recompute", "out_of_memory")


def preempted(
    sequence: int, cause: PreemptionCause = "out_of_blocks", discarded_tokens: int = 9
) -> RequestPreempted:
    return RequestPreempted(sequence, 50 + sequence, "recompute", cause, discarded_tokens, 3, 5)


def resumed(sequence: int, recompute: int = 4, found: int = 5) -> RequestResumed:
    return RequestResumed(sequence, 50 + sequence, recompute, found, 2_000)


def gave_back(
    sequence: int, cached: list[int], free: list[int], shared: list[int]
) -> BlocksReleased:
    return BlocksReleased(sequence, cached, free, shared, "preempted")


def after(*events: EngineEvent, followed_blocks: int = 100) -> Preemption:
    """The events of one step."""
    fold = Preemption(followed_blocks)
    fold.on_batch(batch_of(*events))
    fold.check()
    return fold


def last(fold: Preemption) -> Victim:
    return fold.history[-1]


def test_a_resumption_has_the_mode_and_cause_of_the_preemption_that_it_answers() -> None:
    fold = after(
        preempted(1, "out_of_blocks", 100),
        preempted(2, "out_of_memory", 10),
        resumed(2, recompute=10, found=0),
        resumed(1, recompute=40, found=60),
    )
    costs = fold.costs[NO_BLOCKS]
    assert (costs.preemptions, costs.discarded_tokens, costs.stalled_ns) == (1, 100, 2_000)
    assert (costs.found_tokens, costs.recomputed_tokens) == (60, 40)
    assert fold.costs[NO_MEMORY].recomputed_tokens == 10
    assert fold.costs["recompute", "reset"].preemptions == 0


def test_a_victim_that_ends_before_it_resumes_waited_until_then_and_computes_nothing_again() -> (
    None
):
    fold = Preemption()
    fold.on_batch(batch_of(preempted(1, "out_of_memory", 100), time_ns=1_000))
    fold.on_batch(batch_of(ended(2), time_ns=2_000))
    fold.on_batch(batch_of(ended(1, reason="abort"), time_ns=4_000))
    costs = fold.costs[NO_MEMORY]
    assert (costs.abandoned_tokens, costs.stalled_ns) == (100, 3_000)
    assert (costs.found_tokens, costs.recomputed_tokens) == (0, 0)
    assert (last(fold).state, last(fold).stalled_ns) == ("ended", 3_000)
    assert fold.waiting_tokens(NO_MEMORY) == 0


def test_a_victim_may_be_preempted_again_for_another_cause() -> None:
    fold = after(
        preempted(1), resumed(1), preempted(1, "out_of_memory"), resumed(1, recompute=9, found=0)
    )
    assert fold.costs[NO_BLOCKS].found_tokens == 5
    assert fold.costs[NO_MEMORY].recomputed_tokens == 9
    assert [victim.state for victim in fold.history] == ["resumed", "resumed"]


def test_what_became_of_those_that_waited_in_a_gap_is_not_known() -> None:
    fold = after(gave_back(1, [3], [4], []), preempted(1))
    fold.on_gap()
    fold.on_batch(batch_of(BlocksAllocated(2, [3], "decode"), resumed(1)))
    assert fold.costs[NO_BLOCKS].lost_tokens == 9
    assert fold.costs[NO_BLOCKS].recomputed_tokens == 0, "it may answer a later preemption"
    unattributed = fold.costs[UNATTRIBUTED]
    assert (unattributed.recomputed_tokens, unattributed.found_tokens) == (4, 5)
    assert unattributed.stalled_ns == 2_000
    assert (last(fold).state, last(fold).taken_by, last(fold).resumed) == ("lost", None, None)
    assert (fold.num_gaps, fold.waiting_tokens(NO_BLOCKS)) == (1, 0)


def test_a_resumption_without_its_preemption_is_on_the_page_without_mode_and_cause() -> None:
    exporter, subscription = make_exporter()

    def samples(name: str) -> dict[tuple[str, str], float]:
        (family,) = (f for f in exporter.registry.collect() if f.name == name)
        return {
            (s.labels.get("mode", ""), s.labels.get("cause", "")): s.value for s in family.samples
        }

    put(subscription, 0, 0, PoolCreated(8, 4, 0), preempted(1), resumed(1))
    before = samples("kvscope_preemption_recomputed_tokens")
    assert before == {NO_BLOCKS: 4, NO_MEMORY: 0, ("recompute", "reset"): 0}
    put(subscription, 1, 1, resumed(2, recompute=7, found=1))
    assert samples("kvscope_preemption_recomputed_tokens") == {**before, ("", ""): 7}
    assert samples("kvscope_preemption_found_tokens")["", ""] == 1
    assert samples("kvscope_preemption_stalled_seconds")["", ""] == 2_000 / 1e9
    assert ("", "") not in samples("kvscope_preemption_discarded_tokens")


def test_it_is_known_for_whom_a_victim_was_preempted() -> None:
    shortage = AllocationFailed(7, 2, 1)
    fold = after(shortage, gave_back(1, [3], [4], []), preempted(1), preempted(2))
    assert [victim.wanted_by for victim in fold.history] == [shortage, None]


def test_a_shortage_is_not_blamed_for_another_steps_preemption_or_for_one_of_another_cause() -> (
    None
):
    fold = after(AllocationFailed(7, 2, 1), step(), preempted(1))
    fold.apply(AllocationFailed(7, 2, 1))
    fold.apply(preempted(2, "out_of_memory"))
    assert [victim.wanted_by for victim in fold.history] == [None, None]


def test_who_was_first_given_a_victims_block_took_it() -> None:
    fold = after(
        AllocationFailed(7, 2, 1),
        gave_back(1, [3, 4, 5], [6], [2]),
        preempted(1),
        BlocksEvicted([3], [block_hash(3)], "capacity"),
        BlocksAllocated(7, [6, 3], "decode"),
        BlocksAllocated(8, [4, 9], "prefill"),
        BlocksAllocated(7, [4], "decode"),  # from 8, not from the victim
        BlocksAllocated(None, [2], "prefill"),
    )
    assert last(fold).taken_by == {7: 2, 8: 1, None: 1}
    assert fold.num_kept(last(fold)) == 1


def test_what_the_victim_takes_itself_was_taken_by_nobody() -> None:
    fold = after(
        gave_back(1, [3, 4], [5], []),
        preempted(1),
        BlocksAllocated(7, [5], "decode"),
        BlocksEvicted([4], [block_hash(4)], "capacity"),
        BlocksAllocated(1, [4], "prefill"),
        BlocksAllocated(7, [3], "decode"),
        resumed(1),
    )
    assert last(fold).taken_by == {7: 1}
    assert last(fold).kept_blocks == 2, "until it resumed"


def test_a_block_that_others_still_hold_keeps_its_content_until_the_last_of_them_lets_it_go() -> (
    None
):
    fold = after(gave_back(1, [], [], [3, 4]), preempted(1))
    assert fold.num_kept(last(fold)) == 2
    fold.apply(BlocksReleased(2, [3], [4], [], "finished"))
    assert fold.num_kept(last(fold)) == 1
    fold.apply(ContentDropped([3], [block_hash(3)], "invalid"))
    assert fold.num_kept(last(fold)) == 0
    assert last(fold).taken_by == {}


def test_a_reset_of_the_cache_takes_content_and_no_block() -> None:
    fold = after(
        gave_back(1, [3, 4], [], []),
        preempted(1),
        BlocksEvicted([3, 4], [block_hash(3), block_hash(4)], "reset"),
        resumed(1),
    )
    assert (last(fold).taken_by, last(fold).kept_blocks) == ({}, 0)


def test_two_victims_can_have_given_back_one_block() -> None:
    fold = after(
        gave_back(1, [], [], [3]),
        preempted(1),
        gave_back(2, [3], [], []),
        preempted(2),
        BlocksAllocated(7, [3], "decode"),
        resumed(2),
        resumed(1),
    )
    assert [victim.taken_by for victim in fold.history] == [{7: 1}, {7: 1}]


def test_blocks_given_back_after_the_preemption_was_told_are_followed_from_then_on() -> None:
    fold = after(preempted(1), step())
    assert last(fold).taken_by is None, "nobody has said which they are"
    fold.on_batch(batch_of(gave_back(1, [3], [4], []), BlocksAllocated(7, [4], "decode")))
    assert last(fold).taken_by == {7: 1}
    fold.on_batch(batch_of(resumed(1)))
    assert last(fold).kept_blocks == 1


def test_a_new_pool_has_none_of_the_blocks() -> None:
    fold = after(gave_back(1, [3], [], []), preempted(1), PoolCreated(8, 4, 0), resumed(1))
    assert (last(fold).taken_by, last(fold).kept_blocks) == (None, None)


def test_only_so_many_takers_are_named() -> None:
    blocks = list(range(MAX_TAKERS + 5))
    fold = after(
        gave_back(1, blocks, [], []),
        preempted(1),
        *(BlocksAllocated(100 + block, [block], "decode") for block in blocks[:-1]),
        BlocksAllocated(100, [blocks[-1]], "decode"),
    )
    takers = last(fold).taken_by
    assert takers is not None
    assert takers == {100: 2} | {100 + block: 1 for block in blocks[1:MAX_TAKERS]}
    assert last(fold).taken_by_further == 4


def test_where_there_is_no_room_to_follow_blocks_it_is_unknown_who_took_them() -> None:
    fold = after(
        gave_back(1, [1, 2, 3], [], []),
        preempted(1),
        gave_back(2, [4, 5], [], []),
        preempted(2),
        BlocksReleased(2, [6], [], [], "preempted"),  # a part would look like the whole
        BlocksAllocated(7, [1, 4, 6], "decode"),
        followed_blocks=4,
    )
    assert [victim.taken_by for victim in fold.history] == [{7: 1}, None]
    fold.on_batch(
        batch_of(resumed(1), resumed(2), gave_back(3, [1, 2, 3, 4], [], []), preempted(3))
    )
    assert last(fold).taken_by == {}, "there is room again"


def test_a_sequence_preempted_twice_without_having_resumed_is_lost_once() -> None:
    fold = after(gave_back(1, [3], [], []), preempted(1), preempted(1, "out_of_memory"), resumed(1))
    assert [victim.state for victim in fold.history] == ["lost", "resumed"]
    assert fold.costs[NO_BLOCKS].lost_tokens == 9
    assert fold.costs[NO_MEMORY].found_tokens == 5
    assert fold.history[0].taken_by is None


def test_the_history_is_short_and_the_bill_complete() -> None:
    fold = after(*(preempted(number) for number in range(HISTORY + 20)))
    fold.on_batch(batch_of(*(resumed(number) for number in range(HISTORY + 20))))
    assert len(fold.history) == HISTORY
    assert fold.history[0].preempted.sequence == 20
    assert fold.costs[NO_BLOCKS].recomputed_tokens == 4 * (HISTORY + 20)
