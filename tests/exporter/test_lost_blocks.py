"""How many blocks preempted sequences had lost at once: what swap space would have to hold."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.adviser.facts import Facts
from exporter.adviser.gather import gather, most_lost_at_once
from exporter.answers.advice import ADVICE
from exporter.answers.question import Question
from exporter.answers.reply import memory_of
from exporter.fold.preemption.victim import Victim
from exporter.host_memory import Available, HostMemory
from exporter.machine import Machine
from kvscope_events.events import RequestPreempted
from tests.support.loads import chats
from tests.support.paced import Paced

GIB = 2**30
FACTS: Question[Facts] = Question(
    name="facts", summary="", events=(), folds=ADVICE.folds, read=gather
)


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
        host=lambda _pid: HostMemory(
            resident=GIB, limit=None, usage=None, working_set=None, unreclaimable=None
        ),
        available=lambda: Available(64 * GIB, 30 * GIB),
    )
    engine = Paced(num_blocks=256, bytes_per_block=2**21, machine=machine)
    engine.play(chats(seed=1, seconds=60, calls_per_second=6), 60)
    (target,) = engine.exporter.targets
    facts = target.answer(FACTS, machine, memory_of([target]))
    assert facts.can_swap
    assert facts.swap_blocks == 0
    assert 0 < facts.lost_blocks <= 256
    assert facts.host is not None
    answer = target.answer(ADVICE, machine, memory_of([target]))
    (found,) = [p for p in answer.proposals if p.option == "swap_space"]
    wanted = 2 * facts.lost_blocks * 2**21
    assert wanted <= found.proposed * GIB < wanted + GIB / 10
