"""The budget of a step on a card that is crowded for a while, or for good. Steps take 20 ms."""

from collections.abc import Callable

import pytest

from kvscope_engine.step_budget import MAX_RETRY_STEPS, RAISE_STEPS, StepBudget

LIMIT = 2048
STEPS_PER_SECOND = 50


def steps_that_fail(
    budget: StepBudget,
    steps: int,
    capacity: int,
    demand: Callable[[int], int] = lambda step: LIMIT,
) -> int:
    """Run steps of as many tokens as are wanted and allowed; those over `capacity` fail."""
    failures = 0
    for step in range(steps):
        tokens = min(budget.current, demand(step))
        if tokens > capacity:
            assert budget.cut(tokens) <= max(1, tokens // 2)
            failures += 1
        else:
            budget.succeeded(tokens)
        assert 1 <= budget.current <= LIMIT
    return failures


@pytest.mark.parametrize("capacity", [1, 2, 3, 17, 100, 511, 1024, 1500, 2047])
@pytest.mark.parametrize("seconds", [0.1, 1.0, 5.0, 6.0, 60.0])
def test_a_card_that_is_free_again_gets_its_full_steps_within_two_seconds(
    capacity: int, seconds: float
) -> None:
    budget = StepBudget(LIMIT)
    assert steps_that_fail(budget, int(seconds * STEPS_PER_SECOND), capacity)
    assert steps_that_fail(budget, 2 * STEPS_PER_SECOND, capacity=LIMIT) == 0
    assert budget.current == LIMIT


@pytest.mark.parametrize("capacity", [1, 2, 3, 17, 100, 511, 1024, 1500, 2047])
def test_on_a_card_that_stays_crowded_few_steps_fail(capacity: int) -> None:
    budget = StepBudget(LIMIT)
    steps_that_fail(budget, 5 * STEPS_PER_SECOND, capacity)
    steps = 60 * STEPS_PER_SECOND
    assert steps_that_fail(budget, steps, capacity) <= 0.02 * steps
    budget.succeeded(budget.current)
    assert budget.current >= capacity // 2, "what works is used"


def test_prompts_that_come_now_and_then_fail_no_oftener() -> None:
    """Decode steps of 8 tokens say nothing about large ones."""
    budget = StepBudget(LIMIT)

    def demand(step: int) -> int:
        return LIMIT if step % 10 == 0 else 8

    steps_that_fail(budget, 5 * STEPS_PER_SECOND, 100, demand)
    steps = 60 * STEPS_PER_SECOND
    assert steps_that_fail(budget, steps, 100, demand) <= 0.02 * steps


def test_the_size_that_failed_is_tried_before_any_larger_one() -> None:
    budget = StepBudget(LIMIT)
    budget.cut(1000)
    sizes = set()
    for _ in range(200):
        sizes.add(budget.current)
        budget.succeeded(min(budget.current, 999))
        if budget.current == 1000:
            break
    assert sizes == {500}
    for _ in range(2 * RAISE_STEPS):
        budget.succeeded(budget.current)
    assert budget.current == LIMIT


def test_a_size_that_no_step_needs_whole_does_not_bind_for_ever() -> None:
    """Prompts that may not be split: two of 600 tokens do not fit into 1,000."""
    budget = StepBudget(LIMIT)
    budget.cut(1000)
    for _ in range(3 * MAX_RETRY_STEPS):
        budget.succeeded(600)
    assert budget.current == LIMIT


def test_a_failure_long_after_the_last_is_retried_as_soon_as_the_first() -> None:
    crowded_before, fresh = StepBudget(LIMIT), StepBudget(LIMIT)
    steps_that_fail(crowded_before, 60 * STEPS_PER_SECOND, 100)
    steps_that_fail(crowded_before, 2 * STEPS_PER_SECOND, LIMIT)
    for budget in (crowded_before, fresh):
        budget.cut(LIMIT)
        assert steps_that_fail(budget, 20, LIMIT) == 0
    assert crowded_before.current == fresh.current == LIMIT
