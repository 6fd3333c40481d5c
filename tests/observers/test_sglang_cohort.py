"""Figures that an SGLang observer keeps from one decode step to the next equal fresh ones."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.observers.sglang.cohort import Cohort
from kvscope_events.observers.sglang.requests import Sequence

PAGES = st.sampled_from([1, 2, 16, 64])
STEPS = st.lists(st.one_of(st.none(), st.sets(st.integers(0, 5))), max_size=60)
"""Each a decode step; numbers: those that decode from then on, as some came or went before it."""


def make_request(number: int, length: int) -> Any:
    return SimpleNamespace(rid=f"r{number}", kv=SimpleNamespace(kv_allocated_len=length))


@given(PAGES, st.lists(st.integers(1, 200), min_size=6, max_size=6), STEPS)
def test_the_pages_that_a_step_begins(page: int, lengths: list[int], steps: list[Any]) -> None:
    requests = [make_request(number, length) for number, length in enumerate(lengths)]
    cohort, batch = Cohort(page), requests
    for change in steps:
        if change is not None:
            batch = [requests[number] for number in sorted(change)]
            cohort.forget()
        for request in batch:
            request.kv.kv_allocated_len += 1
        begun = sum((request.kv.kv_allocated_len - 1) % page == 0 for request in batch)
        assert cohort.pages_begun([*batch]) == begun


def test_an_unchanged_step_touches_no_request() -> None:
    batch = [make_request(number, 17) for number in range(3)]
    running = {request.rid: Sequence(n, request, 0) for n, request in enumerate(batch, 1)}
    cohort = Cohort(16)
    assert cohort.pages_begun(batch) == 3
    assert cohort.emitted(batch, running, {"r1"}) == [1, 3]
    for request in batch:
        del request.kv, request.rid
    assert [cohort.pages_begun(batch) for _ in range(16)] == [0] * 15 + [3]
    assert cohort.emitted(batch, running, {"r1"}) == [1, 3]


def test_who_got_a_token_is_computed_again_once_a_prompt_has_been_computed() -> None:
    batch = [make_request(number, 17) for number in range(2)]
    running = {request.rid: Sequence(n, request, 0) for n, request in enumerate(batch, 1)}
    cohort = Cohort(16)
    assert cohort.emitted(batch, running, {"r0", "r1"}) == []
    cohort.forget()
    assert cohort.emitted(batch, running, {"r0"}) == [2]
    assert cohort.emitted(batch[:1], running, set()) == [1]
