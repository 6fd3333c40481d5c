"""Paths that contradict the tree of blocks leave no names behind, and no weight."""

from random import Random

import pytest

from kvscope_exporter.state.cache import run_stack
from kvscope_exporter.state.cache.run_stack import RunStack

HORIZON = 12


def test_any_paths_leave_the_weights_right(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for seed in range(200):
        with subtests.test(seed=seed):
            monkeypatch.setattr(run_stack, "_SPARE", 3)
            rng, stack = Random(seed), RunStack(HORIZON)
            for _ in range(100):
                path = [rng.randrange(20) for _ in range(rng.randint(1, 9))]
                draw = rng.random()
                if draw < 0.4:
                    taken = stack.take(path)
                    assert sum(count for _, count in taken) <= len(path)
                    assert not taken or path[0] not in stack
                elif draw < 0.9:
                    stack.push(path, rng.choice([0, 0, 1]))
                    assert all(name in stack for name in path)
                else:
                    stack.remove(path[:2])
                stack.check()
            stack.remove(range(20))
            stack.check()
            assert not any(name in stack for name in range(20))


def test_a_name_that_stands_twice_in_a_release_is_one_block() -> None:
    stack = RunStack()
    stack.push([1, 2, 1])
    stack.check()
    assert len(stack) == 2
    assert stack.take([1, 2]) == [(0, 2)]
    assert len(stack) == 0


def test_blocks_taken_out_of_a_run_do_not_keep_those_before_them() -> None:
    stack = RunStack(4)
    stack.push([1, 2, 3, 4])
    assert stack.take([2, 3]) == [(0, 2)]
    stack.check()
    stack.push([5, 6, 7, 8])
    assert 1 not in stack
    assert 4 not in stack
    stack.check()
