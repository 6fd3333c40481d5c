"""The host's pool hands out each block to one owner at a time, and loses none."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvscope_engine.swap.host_pool import HostPool, OutOfHostBlocksError


class HostPoolMachine(RuleBasedStateMachine):
    """Against a set of free ids."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = HostPool(1)
        self.free = {0}
        self.owned: list[list[int]] = []

    @initialize(num_blocks=st.integers(1, 12))
    def build(self, num_blocks: int) -> None:
        self.pool, self.free = HostPool(num_blocks), set(range(num_blocks))

    @rule(count=st.integers(0, 13))
    def allocate(self, count: int) -> None:
        fits = count <= len(self.free)
        assert self.pool.can_allocate(count) == fits
        if not fits:
            with pytest.raises(OutOfHostBlocksError) as raised:
                self.pool.allocate(count)
            assert (raised.value.wanted, raised.value.free) == (count, len(self.free))
            return
        blocks = self.pool.allocate(count)
        assert len(set(blocks)) == count
        assert self.free >= set(blocks)
        self.free -= set(blocks)
        self.owned.append(blocks)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        blocks = self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1)))
        self.pool.release(blocks)
        self.free |= set(blocks)

    @invariant()
    def accounted(self) -> None:
        self.pool.check()
        assert self.pool.num_free == len(self.free)
        assert self.pool.num_used + self.pool.num_free == self.pool.num_blocks


TestHostPoolMachine = HostPoolMachine.TestCase
TestHostPoolMachine.settings = settings(stateful_step_count=30)


def test_a_double_free_stops_the_pool() -> None:
    pool = HostPool(4)
    blocks = pool.allocate(2)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="double free: host block 0"):
        pool.release([0])


def test_blocks_that_were_never_used_are_handed_out_in_one_run() -> None:
    pool = HostPool(8)
    assert (pool.allocate(3), pool.allocate(4)) == ([0, 1, 2], [3, 4, 5, 6])


def test_a_run_that_was_given_back_is_handed_out_as_a_run() -> None:
    pool = HostPool(8)
    first, _ = pool.allocate(4), pool.allocate(4)
    pool.release(first)
    assert pool.allocate(4) == [0, 1, 2, 3]


def test_a_pool_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="num_blocks must be positive, got 0"):
        HostPool(0)
