"""Every number of the scenario with a host in preemption.md is that of the real engine."""

import re

import msgspec
import pytest

from kvscope_events.events import BlocksSwapped
from kvscope_exporter.answers.preemptions import PREEMPTIONS, OnePreemption, Preemptions
from tests.exporter.bill_by_hand import DOCUMENT, Scenario, table
from tests.exporter.page import value

STEPS = table("Step by step, with a host")


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    return Scenario(monkeypatch, blocks=8, requests="Four requests", swap_blocks=4)


def play(scenario: Scenario) -> Preemptions:
    """All steps: the answer at the end."""
    while scenario.step_number < len(STEPS):
        scenario.step()
    assert not scenario.engine.live
    (engine,) = scenario.exporter.answer(PREEMPTIONS).engines
    assert engine.unknown is None
    return msgspec.convert(msgspec.to_builtins(engine.answer), Preemptions)


def test_the_blocks_of_every_step_are_those_of_the_document(scenario: Scenario) -> None:
    for number, row in enumerate(STEPS, start=1):
        computed = scenario.step()
        found = [number, computed, *scenario.pool(), *map(scenario.state, "ABCD")]
        assert [str(cell) for cell in found] == row[:8]
    assert not scenario.engine.live


def test_every_copy_of_the_document_is_told_in_its_step(scenario: Scenario) -> None:
    told = []
    for _ in STEPS:
        seen = len(scenario.engine.events)
        scenario.step()
        told += [
            [
                str(scenario.step_number),
                scenario.name_of(event.sequence),
                event.direction,
                str(event.blocks),
                str(event.used),
            ]
            for event in scenario.engine.events[seen:]
            if isinstance(event, BlocksSwapped)
        ]
    assert told == table("On the host")


def test_each_victims_cost_and_takers_are_those_of_the_document(scenario: Scenario) -> None:
    answer = play(scenario)
    rows = [_row(scenario, one) for one in reversed(answer.preemptions)]
    assert rows == table("Two swapped, one not")


def test_the_sums_of_the_document_are_those_of_the_answer_and_of_the_page(
    scenario: Scenario,
) -> None:
    answer = play(scenario)
    for mode, *figures in table("The sums by mode"):
        kind = {"mode": mode, "cause": "out_of_blocks"}
        (bill,) = (b for b in answer.bill if (b.mode, b.cause) == tuple(kind.values()))
        assert bill.lost_tokens == bill.waiting_tokens == 0
        assert [float(figure) for figure in figures] == [
            bill.preemptions,
            bill.discarded_tokens,
            bill.found_tokens,
            bill.swapped_tokens,
            bill.recomputed_tokens,
            bill.abandoned_tokens,
            bill.stalled_seconds,
        ]
        for what in ("discarded_tokens", "found_tokens", "recomputed_tokens", "stalled_seconds"):
            series = value(scenario.exporter, f"kvscope_preemption_{what}_total", **kind)
            assert series == getattr(bill, what)
    modes = {bill.mode for bill in answer.bill if bill.preemptions}
    assert {mode for mode, *_ in table("The sums by mode")} == modes


def test_the_host_saves_as_many_tokens_as_the_document_says(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(scenario)
    swapped = sum(scenario.runner.computed.values())
    without = Scenario(monkeypatch, blocks=8, requests="Four requests")
    while without.step_number < 6 or without.engine.live:
        without.step()
    text = re.sub(r"\s+", " ", DOCUMENT.read_text())
    assert f"{len(STEPS)} steps computed {swapped} tokens, none of them twice" in text
    assert f"compute {sum(without.runner.computed.values())}: C's 8 once more" in text


def _row(scenario: Scenario, one: OnePreemption) -> list[str]:
    """As a line of the table: what is not known is empty."""
    assert one.taken_by is not None
    takers = [f"{scenario.name_of(taker.sequence)} {taker.blocks}" for taker in one.taken_by]
    figures = (one.found_tokens, one.swapped_tokens, one.recomputed_tokens, one.stalled_seconds)
    return [
        scenario.name_of(one.sequence),
        one.mode,
        str(one.blocks),
        str(one.discarded_tokens),
        ", ".join(takers),
        str(one.kept_blocks),
        one.state,
        *("" if figure is None else f"{figure:g}" for figure in figures),
    ]
