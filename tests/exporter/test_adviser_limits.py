"""Limits of the adviser: where it must say less, or count something easily overlooked."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kvscope_events.events import PoolCreated, PoolSnapshot, StartupProfiled
from kvscope_exporter.adviser.facts import Facts, Sizing
from kvscope_exporter.adviser.pool_size import candidates
from kvscope_exporter.adviser.proposal import DeclinedProposal, Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.adviser.room_for_steps import room_for_steps
from kvscope_exporter.adviser.sequences import more_sequences
from kvscope_exporter.adviser.smaller_steps import smaller_steps
from kvscope_exporter.adviser.step_room import step_room
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.state.recent import LoadWindow
from kvscope_exporter.targets.advised import AdviceCollector
from kvscope_exporter.targets.reply import memory_of
from tests.exporter.advised import SECOND, curve, facts, room, slot
from tests.exporter.machine import GIB, UUID
from tests.exporter.stream import batch_of, step
from tests.exporter.test_advice_answer import FACTS
from tests.exporter.test_workers import TERMS, OneCard, sampled, scheduler, worker

POOL = PoolCreated(41, 4, 64, 1)
SNAPSHOT = PoolSnapshot(41, 4, 64, 1, [], [], [])


def largest_after(*batches: Any) -> int | None:
    fold = LoadWindow()
    for batch in batches:
        if batch is None:
            fold.on_gap()
        else:
            fold.on_batch(batch)
    return fold.largest_step


def test_the_largest_step_is_that_of_the_session_and_unknown_where_steps_were_missed() -> None:
    large, small = step(prefill_tokens=600, decode_tokens=0), step(prefill_tokens=6)
    minutes = 600 * SECOND
    assert largest_after(batch_of(POOL, large), batch_of(small, time_ns=minutes)) == 600
    assert largest_after(batch_of(POOL, large), batch_of(POOL, small)) == 600, "as the peak"
    assert largest_after(batch_of(POOL, large), batch_of(SNAPSHOT, small)) == 600
    assert largest_after(batch_of(SNAPSHOT, large)) is None
    assert largest_after(batch_of(POOL, large), None, batch_of(small)) is None


def test_a_snapshot_tells_of_the_steps_that_were_missed() -> None:
    small = step(prefill_tokens=6, decode_tokens=0)
    told = msgspec.structs.replace(SNAPSHOT, largest_step=600)
    assert largest_after(batch_of(told, small)) == 600, "it came late"
    assert largest_after(batch_of(POOL, small), None, batch_of(told), batch_of(small)) == 600
    large = step(prefill_tokens=900, decode_tokens=0)
    assert largest_after(batch_of(POOL, large), batch_of(told)) == 900
    assert largest_after(batch_of(told), batch_of(large)) == 900


def test_the_peak_of_a_session_is_not_divided_by_the_small_steps_of_late() -> None:
    late = facts(load=slot(largest_step=8), largest_step=2048, rooms=[room(free_bytes=GIB // 2)])
    steps = step_room(late)
    assert steps is not None
    assert steps.bytes_per_token == GIB / 2048
    assert not steps.is_short
    assert step_room(replace(late, largest_step=None)) is None


def test_an_exporter_that_came_later_than_the_pool_says_why_it_knows_nothing_of_steps() -> None:
    late = facts(load=slot(largest_step=8), largest_step=None, rooms=[room()])
    for proposed in (smaller_steps, room_for_steps):
        verdict = proposed(late)
        assert isinstance(verdict, DeclinedProposal)
        assert "the exporter started after the pool" in verdict.reason
    silent = replace(late, rooms=[room(largest_step_bytes=0)])
    for other in (silent, replace(late, load=slot(largest_step=0))):
        verdict = smaller_steps(other)
        assert isinstance(verdict, DeclinedProposal)
        assert verdict.reason.endswith("how much memory a step takes is not known here")


def gathered(peak: int, profiled: int | None) -> Facts:
    told = [] if profiled is None else [StartupProfiled({**TERMS, "activation_peak": profiled})]
    targets = [scheduler(), worker(0, sampled(0), *told)]
    processes = memory_of(targets)
    processes[1] = replace(processes[1], activation_peaks={UUID: peak})
    return targets[0].answer(FACTS, Machine(gpu=OneCard()), processes)


def test_a_small_peak_so_far_does_not_replace_the_profiled_one() -> None:
    # The scenario's engine has had a step of 4 GiB.
    for peak, profiled, largest in ((1, 6, 6), (8, 6, 8), (8, None, 8)):
        found = gathered(peak * GIB, None if profiled is None else profiled * GIB)
        (card,) = found.rooms
        assert card.largest_step_bytes == largest * GIB
        assert card.is_profiled == (profiled is not None)
    assert found.uses_device


@pytest.mark.parametrize("is_profiled", [True, False])
def test_a_larger_pool_says_so_where_the_largest_step_is_only_one_so_far(is_profiled: bool) -> None:
    found = advise(facts(curve=curve(0.41, 0.6), rooms=[room(is_profiled=is_profiled)]))
    (larger,) = [p for p in found.proposals if p.option == "num_gpu_blocks_override"]
    assert any("no step will be larger" in text for text in larger.assumes) == (not is_profiled)


def test_two_engines_on_one_device_each_take_a_share() -> None:
    shared = room(free_bytes=6 * GIB, bytes_per_block=4 << 20, own_bytes_per_block=2 << 20)
    given = facts(
        pool_option="gpu_memory_utilization",
        sizing=Sizing(total_bytes=24 * GIB, utilization=0.4, in_use_at_start_bytes=0),
        rooms=[shared],
    )
    larger = [c for c in candidates(given) if c.usable_blocks > 1000]
    assert larger[0].usable_blocks - 1000 == int(0.01 * 24 * GIB / (2 << 20))
    most = larger[-1].usable_blocks - 1000
    assert most * shared.bytes_per_block <= shared.spare_bytes
    assert larger[-1].value == 0.49, "4.5 GiB are spare, half of them for each: 0.094 of the card"


def test_a_page_rendered_meanwhile_has_all_proposals_of_before() -> None:
    proposal = SimpleNamespace(option="block_size", proposed=16.0, gain=SimpleNamespace())
    proposal.gain.saved_tokens_per_second = 1.0
    made = SimpleNamespace(proposals=[proposal], idle_seconds=0.0)
    meanwhile = []
    advised = AdviceCollector(Clock())
    maker = Families({"model_name": "m", "engine": "0"}, Clock())

    def page(*read: dict[str, Any], is_new: bool = True) -> int:
        shown: Any = [SimpleNamespace(up=True, maker=maker, read=each) for each in read]
        targets: list[Any] = [0, 1, 2]
        asked = list(zip(targets, shown, strict=True))
        return len(list(advised.collect(asked, is_new=is_new))) // 2

    known = {ADVICE.name: made}
    assert page(known, {}, known) == 2, "the second one is unknown"

    class Late(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            meanwhile.append(page(known, known, known, is_new=False))
            return super().__getitem__(name)

    assert page(known, Late(known), known) == 3
    assert meanwhile == [2]


def test_more_sequences_need_a_device_whose_memory_is_known() -> None:
    load = slot(active_ns=150 * SECOND * 160)
    given = facts(load=load, max_num_seqs=8, waiting_for_sequences=6.0, rooms=())
    assert isinstance(more_sequences(given), Proposal), "nothing real, or the host"
    found = more_sequences(replace(given, uses_device=True))
    assert isinstance(found, DeclinedProposal)
    assert "not known" in found.reason
