"""Under the policy `priority` a class is a head start of some seconds: no request starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.request import SequenceState
from kvscope_events.events import RequestScheduled
from tests.support.accounting import Accounting

SECOND_NS = 1_000_000_000
AGING_SECONDS = 10.0


def engine_of_one(aging_seconds: float) -> Accounting:
    """Serves one sequence at a time."""
    return Accounting(
        policy="priority", max_num_seqs=1, priority_aging_seconds=aging_seconds, num_blocks=30
    )


def served(engine: Accounting) -> list[int]:
    """Numbers of the calls, in the order in which they ran."""
    engine.run()
    return [e.request - 1_000 for e in engine.events if isinstance(e, RequestScheduled)]


@pytest.mark.parametrize(("aging", "last"), [(AGING_SECONDS, False), (0.0, True)])
def test_a_stream_of_urgent_calls_holds_a_patient_one_up_only_for_its_head_start(
    aging: float, last: bool
) -> None:
    engine = engine_of_one(aging)
    engine.call([[1]], 2, priority=2, arrival_ns=0)
    for second in range(1, 60):
        engine.call([[1]], 2, priority=0, arrival_ns=second * SECOND_NS)
    order = served(engine)
    assert order.index(0) == (59 if last else 19), "20 s for two classes; at 20 s it came first"


def test_equals_are_served_in_the_order_of_arrival_whatever_their_class() -> None:
    for priority in (-5, 0, 7):
        engine = engine_of_one(AGING_SECONDS)
        for second in range(6):
            engine.call([[1]], 2, priority=priority, arrival_ns=second * SECOND_NS)
        assert served(engine) == list(range(6))


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 40), st.integers(1, 3)),
        min_size=2,
        max_size=12,
    )
)
def test_nobody_is_overtaken_by_what_arrives_later_than_its_head_start(
    calls: list[tuple[int, int, int]],
) -> None:
    """For all pairs of calls that wait at the same time; ranks are unique and the list sorted."""
    engine = engine_of_one(AGING_SECONDS)
    for priority, second, n in calls:
        engine.call([[1]], 3, n, priority=priority, arrival_ns=second * SECOND_NS)
    ranks = [sequence.rank for sequence in engine.sequences]
    assert len(set(ranks)) == len(ranks)
    place = {call: place for place, call in enumerate(served(engine))}
    for one, (priority, second, _) in enumerate(calls):
        for other, (their_priority, their_second, _) in enumerate(calls):
            classes = priority - their_priority
            if their_second > second + max(0, classes) * AGING_SECONDS:
                assert place[one] < place[other]


def test_under_fcfs_neither_class_nor_age_counts() -> None:
    engine = Accounting(max_num_seqs=1)
    for priority in (5, 0, 3):
        engine.call([[1]], 2, priority=priority, arrival_ns=0)
    assert served(engine) == [0, 1, 2]


def test_the_running_list_is_in_the_order_of_the_queue() -> None:
    engine = Accounting(policy="priority", max_num_seqs=4, priority_aging_seconds=AGING_SECONDS)
    for priority, second in ((0, 25), (2, 3), (1, 30), (0, 22)):
        engine.call([[1] * 3], 6, priority=priority, arrival_ns=second * SECOND_NS)
    engine.step()
    running = engine.scheduler.running
    assert [s.state for s in running] == [SequenceState.RUNNING] * 4
    assert [s.request_id - 1_000 for s in running] == [3, 1, 0, 2]
    engine.run()
