"""The cost of a preemption and the takers of its blocks, as far as reported."""

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksReleased,
    EngineEvent,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
)
from kvscope_events.vocabulary import PreemptionCause
from kvscope_exporter.state.preemption import Preemption, Victim
from kvscope_exporter.state.preemption.fold import HISTORY
from kvscope_exporter.state.preemption.whereabouts import MAX_TAKERS
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import batch_of

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


def test_the_history_is_short_and_the_bill_complete() -> None:
    fold = after(*(preempted(number) for number in range(HISTORY + 20)))
    fold.on_batch(batch_of(*(resumed(number) for number in range(HISTORY + 20))))
    assert len(fold.history) == HISTORY
    assert fold.history[0].preempted.sequence == 20
    assert fold.costs[NO_BLOCKS].recomputed_tokens == 4 * (HISTORY + 20)
