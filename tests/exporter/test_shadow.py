"""Simulated pools of several groups, by hand; tests/vllm/test_shadow.py compares them with vLLM."""

from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    CacheGroup,
)
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.groups import layers_of
from kvscope_exporter.state.simulation.pool import Pool
from kvscope_exporter.state.simulation.runs import UNNAMED, Run
from tests.exporter.shadow_stream import (
    FULL,
    SIZE,
    STATE,
    WINDOW,
    digest,
    digests,
)


def pools(capacity: int, *groups: CacheGroup, retention: int | None = 0) -> Coordinator:
    return Coordinator(capacity, layers_of(groups, retention), SIZE)


def serve(pool: Coordinator, number: int, prompt: int, tokens: int) -> int:
    """One request from its admission to its end, without output; the blocks that it found."""
    names = digests(prompt, tokens // SIZE)
    found = pool.admit(number, names, tokens, tokens, (tokens - 1) // SIZE)
    while pool.owes(number):
        assert pool.compute(number, 64, 0)
    pool.end(number)
    pool.check([])
    return found


def named(pool: Pool, prompt: int, blocks: int) -> list[Run]:
    """Blocks of a prompt, taken and named."""
    runs: list[Run] = []
    pool.take(blocks)
    pool.name(0, 0, digests(prompt, blocks), runs)
    return runs


def test_blocks_without_a_name_are_handed_out_before_a_name_is_lost() -> None:
    pool = Pool(3, 1)
    runs = named(pool, 0, 2)
    pool.take(1)
    pool.release([*runs, UNNAMED])
    pool.take(1)
    assert pool.leading(0, digests(0, 2), 2) == 2
    pool.take(1)
    assert pool.leading(0, digests(0, 2), 2) == 1, "the last block goes first"


def test_a_name_stays_while_one_of_its_blocks_does() -> None:
    pool = Pool(2, 1)
    first, second = named(pool, 0, 1), named(pool, 0, 1)
    (younger,) = second
    pool.release(first)
    pool.release(second)
    pool.take(1)
    assert pool.names[0] == {digest(0, 0): younger}
    pool.take(1)
    assert pool.names[0] == {}


def test_what_is_referenced_beyond_the_pool_is_paid_back_first() -> None:
    pool = Pool(2, 1)
    pool.take(2)
    runs = named(pool, 0, 1)
    assert pool.has_owed
    pool.release(runs)
    assert pool.names[0] == {}, "the block was owed"
    pool.release([UNNAMED, UNNAMED])
    assert pool.vacant == 2


def test_a_prompt_that_leaves_another_shares_what_is_before() -> None:
    pool = Pool(9, 1)
    pool.release(named(pool, 0, 6))
    other = [*digests(0, 4), *digests(1, 6)[4:]]
    assert pool.leading(0, other, 6) == 4
    (shared,) = pool.share(0, other, 0, 4)
    pool.take(3)
    pool.take(2)
    assert sorted(pool.names[0]) == digests(0, 4), "what was not shared went first"
    pool.check([[shared, *[UNNAMED] * 5]])


def test_a_name_that_is_not_valid_leaves_its_neighbours() -> None:
    pool = Pool(5, 1)
    runs = named(pool, 0, 5)
    pool.forget(0, digest(0, 2))
    assert pool.leading(0, digests(0, 5), 5) == 2
    assert pool.trailing(0, digests(0, 5), 5, 5) == 3
    pool.check([runs])
    pool.release(runs)
    pool.take(5)
    assert pool.names[0] == {}


def test_a_window_is_kept_only_where_a_request_can_resume() -> None:
    pool = pools(64, WINDOW, FULL)
    assert serve(pool, 1, 0, 21) == 0
    assert sorted(pool.pool.names[0]) == digests(0, 5)[3:]  # seven tokens before the 20th
    assert sorted(pool.pool.names[1]) == digests(0, 5)
    assert serve(pool, 2, 0, 21) == 5
    assert serve(pool, 3, 0, 13) == 0, "full attention has it, the window does not"
    assert digest(0, 2) in pool.pool.names[0], "kept from now on, as the place of a veto"
    assert serve(pool, 4, 0, 13) == 3


def test_without_a_retention_interval_every_block_is_kept() -> None:
    pool = pools(64, WINDOW, FULL, retention=None)
    serve(pool, 1, 0, 21)
    assert serve(pool, 2, 0, 13) == 3


def test_a_state_is_found_where_its_chunk_ended_and_nowhere_else() -> None:
    pool = pools(64, STATE, FULL)
    serve(pool, 1, 0, 21)
    assert sorted(pool.pool.names[0]) == digests(0, 5)[4:]
    assert serve(pool, 2, 0, 21) == 5
    assert serve(pool, 3, 0, 17) == 0


def test_a_hit_leaves_what_the_window_does_not_see() -> None:
    pool = pools(64, WINDOW, FULL, retention=None)
    serve(pool, 1, 0, 21)
    pool.admit(2, digests(0, 5), 21, 21, 5)
    held = [pool.pool.names[0][digest(0, block)] for block in range(5)]
    assert [run.references for run in held] == [0, 0, 0, 1, 1]


@given(
    groups=st.sampled_from([[WINDOW, FULL], [STATE, FULL], [WINDOW, WINDOW, FULL]]),
    retention=st.sampled_from([0, 8, None]),
    capacity=st.integers(6, 40),
    asked=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 3), st.integers(0, 9)),
        max_size=25,
    ),
)
def test_references_and_free_blocks_add_up_whatever_comes(
    groups: list[CacheGroup],
    retention: int | None,
    capacity: int,
    asked: list[tuple[int, int, int, int]],
) -> None:
    pool = pools(capacity, *groups, retention=retention)
    for number, (prompt, tokens, ends, grown) in enumerate(asked):
        names = digests(prompt, 20)
        found = pool.admit(number, names, tokens, tokens, (tokens - 1) // SIZE)
        assert found <= (tokens - 1) // SIZE
        while pool.owes(number) and pool.compute(number, 16, 0):
            pass
        pool.grow(number, -(-(tokens + grown) // SIZE))
        pool.skip(number, tokens + grown, 0)
        pool.name(number, (tokens + grown) // SIZE)
        for earlier in range(number - ends, number):
            pool.end(earlier)
        pool.check([])
