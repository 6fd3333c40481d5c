"""Swap space is proposed for what preempted sequences have lost at once, where the host has it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import RequestPreempted
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.gather import gather, most_lost_at_once
from kvscope_exporter.answers.question import Question
from kvscope_exporter.machine.host_memory import Available, HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.state.victim import Victim
from kvscope_exporter.targets.reply import memory_of
from tests.exporter.advised import GIB, SECOND, facts, needed, room, slot
from tests.support.loads import chats
from tests.support.paced import Paced

FACTS: Question[Facts] = Question(
    name="facts", summary="", events=(), folds=ADVICE.folds, read=gather
)


def thrashing(**changes: Any) -> Facts:
    """200 tokens a second are computed again, on a card that is full; the host has 8 GiB."""
    fields: dict[str, Any] = {
        "load": slot(
            preemptions={"out_of_blocks": 90},
            recomputed_tokens={"out_of_blocks": 60_000},
            need_ns=needed({1.9: 150 * SECOND}),
        ),
        "rooms": [room(free_bytes=GIB)],
        "can_swap": True,
        "host": room(name="host", total_bytes=64 * GIB, free_bytes=8 * GIB, largest_step_bytes=0),
        "lost_blocks": 300,
    }
    return facts(**{**fields, **changes})


def swapping(given: Facts) -> list[Proposal]:
    return [p for p in advise(given).proposals if p.option == "swap_space"]


def test_where_much_is_recomputed_swap_space_is_proposed() -> None:
    (found,) = swapping(thrashing())
    # 300 blocks of 2 MiB, twice: 1.17 GiB.
    assert (found.current, found.proposed) == (None, 1.2)
    assert found.text == (
        "set --preemption-mode auto --swap-space 1.2: at most 200 prompt tokens a second saved, "
        "recomputed tokens at most -100 %, headroom left 6.8 GiB"
    )
    assert found.confidence == "low"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"can_swap": False}, "this server cannot"),
        ({"swap_blocks": 64}, "64 blocks already"),
        ({"host": None}, "not known here"),
        ({"lost_blocks": 0}, "not known"),
        ({"lost_blocks": 1800}, "would be needed"),
        ({"engines": 6}, "7.2 GiB would be needed"),
        ({"load": slot()}, "0 of 2,000 prompt tokens"),
    ],
)
def test_swap_space_is_not_proposed(change: dict[str, Any], reason: str) -> None:
    given = thrashing(**change)
    assert not swapping(given)
    (said,) = [d.reason for d in advise(given).declined if d.reason.startswith("swapping")]
    assert reason in said


def victim(time_ns: int, stalled_ns: int | None, blocks: int) -> Victim:
    event = RequestPreempted(0, 0, "recompute", "out_of_blocks", blocks * 16, blocks, 0)
    return Victim(
        preempted=event,
        wanted_by=None,
        time_ns=time_ns,
        arrived_ns=0,
        wall_ns=0,
        state="waiting" if stalled_ns is None else "resumed",
        stalled_ns=stalled_ns,
    )


@given(
    st.lists(
        st.builds(victim, st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(1, 9))
    )
)
def test_it_is_the_most_of_all_moments(victims: list[Victim]) -> None:
    def lost_at(moment: int) -> int:
        return sum(
            v.preempted.blocks
            for v in victims
            if v.time_ns <= moment and (v.stalled_ns is None or moment < v.time_ns + v.stalled_ns)
        )

    assert most_lost_at_once(victims) == max(map(lost_at, range(61)))


def test_an_engine_that_thrashes_gets_swap_space_proposed_for_what_it_loses() -> None:
    machine = Machine(
        host=lambda _pid: HostMemory(resident=GIB, limit=None, usage=None, unreclaimable=None),
        available=lambda: Available(64 * GIB, 30 * GIB),
    )
    engine = Paced(num_blocks=256, bytes_per_block=2**21, machine=machine)
    engine.play(chats(seed=1, seconds=60, calls_per_second=6), 60)
    (target,) = engine.exporter.targets
    gathered = target.answer(FACTS, machine, memory_of([target]))
    assert gathered.can_swap
    assert gathered.swap_blocks == 0
    assert 0 < gathered.lost_blocks <= 256
    assert gathered.host is not None
    answer = target.answer(ADVICE, machine, memory_of([target]))
    (found,) = [p for p in answer.proposals if p.option == "swap_space"]
    wanted = 2 * gathered.lost_blocks * 2**21
    assert wanted <= found.proposed * GIB < wanted + GIB / 10
