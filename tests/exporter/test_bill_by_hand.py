"""Every number of the scenario in preemption.md is that of the real engine and its page."""

import re

import msgspec
import pytest

from kvscope_exporter.answers.preemptions import PREEMPTIONS, OnePreemption, Preemptions
from tests.exporter.bill_by_hand import DOCUMENT, Scenario, table
from tests.exporter.page import value

STEPS = len(table("Step by step"))


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    return Scenario(monkeypatch, blocks=8, fails_at=14)


def play(scenario: Scenario) -> tuple[int, Preemptions]:
    """All steps: the tokens that they computed, and the answer at the end."""
    computed = sum(scenario.step() for _ in range(STEPS))
    assert not scenario.engine.live
    (engine,) = scenario.exporter.answer(PREEMPTIONS).engines
    assert engine.unknown is None
    return computed, msgspec.convert(msgspec.to_builtins(engine.answer), Preemptions)


def test_the_blocks_of_every_step_are_those_of_the_document(scenario: Scenario) -> None:
    for number, row in enumerate(table("Step by step"), start=1):
        computed = scenario.step()
        found = [number, computed, *scenario.pool(), *map(scenario.state, "ABCDEF")]
        assert [str(cell) for cell in found] == row[:10]
    assert not scenario.engine.live


def test_each_victims_cost_and_takers_are_those_of_the_document(scenario: Scenario) -> None:
    _, answer = play(scenario)
    rows = [_row(scenario, one) for one in reversed(answer.preemptions)]
    assert rows == table("Three victims")


def test_the_sums_of_the_document_are_those_of_the_answer_and_of_the_page(
    scenario: Scenario,
) -> None:
    _, answer = play(scenario)
    page = scenario.exporter
    for cause, *figures in table("The sums"):
        (bill,) = (bill for bill in answer.bill if bill.cause == cause)
        assert bill.lost_tokens == bill.waiting_tokens == 0
        assert [float(figure) for figure in figures] == [
            bill.preemptions,
            bill.discarded_tokens,
            bill.found_tokens,
            bill.recomputed_tokens,
            bill.abandoned_tokens,
            bill.stalled_seconds,
        ]
        for kind in ("discarded_tokens", "found_tokens", "recomputed_tokens", "stalled_seconds"):
            name = f"kvscope_preemption_{kind}_total"
            assert value(page, name, cause=cause) == getattr(bill, kind)
    assert answer.unattributed is None
    assert {cause for cause, *_ in table("The sums")} == {bill.cause for bill in answer.bill}


def test_useful_and_recomputed_tokens_are_all_that_the_steps_computed(scenario: Scenario) -> None:
    computed, answer = play(scenario)
    useful, recomputed = 0, 0
    for name, good, again in table("Useful and not"):
        costs = [one for one in answer.preemptions if scenario.name_of(one.sequence) == name]
        assert sum(one.recomputed_tokens or 0 for one in costs) == int(again)
        sequence = scenario.sequences[name].sequence_id
        assert scenario.runner.computed[sequence] == int(good) + int(again)
        useful, recomputed = useful + int(good), recomputed + int(again)
    assert computed == answer.computed_tokens == useful + recomputed
    assert answer.recomputed_ratio == recomputed / computed
    sentence = f"{useful} useful and {recomputed} recomputed tokens are {computed} in {STEPS} steps"
    hundredths = round(100 * recomputed / computed)
    assert f"{sentence}: {hundredths} of a hundred" in re.sub(r"\s+", " ", DOCUMENT.read_text())


def _row(scenario: Scenario, one: OnePreemption) -> list[str]:
    """As a line of the table: seconds are whole, what is not known is empty."""
    assert one.taken_by is not None
    takers = [f"{scenario.name_of(taker.sequence)} {taker.blocks}" for taker in one.taken_by]
    (step,) = (
        event_step
        for event_step, event in scenario.preempted_in
        if (event.sequence, event.cause) == (one.sequence, one.cause)
    )
    figures = (one.found_tokens, one.recomputed_tokens, one.stalled_seconds)
    return [
        scenario.name_of(one.sequence),
        str(step),
        one.cause,
        "" if one.wanted_by is None else scenario.name_of(one.wanted_by.sequence),
        str(one.blocks),
        f"{one.age_seconds:g}",
        str(one.discarded_tokens),
        ", ".join(takers),
        str(one.kept_blocks),
        one.state,
        *("" if figure is None else f"{figure:g}" for figure in figures),
    ]
