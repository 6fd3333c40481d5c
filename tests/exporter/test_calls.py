"""The state of one engine and its questions: one that raises, gaps, late joins, bounded memory."""

import pytest

from kvscope_events.events import (
    Batch,
    FirstToken,
    RequestArrived,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_exporter.state import GenAi, Latency, Requests, Tenants
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.engine import MEASURED, Engine
from tests.exporter.stream import batch_of, ended, finished, step

PREEMPTED = RequestPreempted(1, 1, "swap", "out_of_blocks", 9, 3, 100)
RESUMED = RequestResumed(1, 1, 4, 5, 1_000)
ARRIVED = (RequestArrived(1, 9, 8, trace_id="f" * 32), SequenceAdded(1, 1, 9, 8))


class Ends(CallFold):
    """Notes what is known of each sequence that ends, and raises at the given one."""

    name = "ends"

    def __init__(self, raises_at: int | None = None) -> None:
        super().__init__()
        self.raises_at = raises_at
        self.seen: list[tuple[int, bool]] = []
        self.arrivals = 0

    def on_arrived(self, request: Request) -> None:
        self.arrivals += 1

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        if event.sequence == self.raises_at:
            raise ValueError("broken for a test")
        self.seen.append((event.sequence, sequence is not None))


def test_a_question_that_raises_is_given_up_and_the_others_go_on() -> None:
    engine = Engine()
    questions = [Ends(), Ends(raises_at=2), Ends()]
    for question in questions:
        question.join(engine)
    for number in (1, 2, 3):
        engine.on_batch(batch_of(RequestArrived(number, 1, 1), ended(number), step()))
    assert [question.arrivals for question in questions] == [3, 2, 3]
    assert [len(question.seen) for question in questions] == [3, 1, 3]
    assert [engine.failed(question) for question in questions] == [False, True, False]
    assert engine.costs()[1] == ["ends"]
    assert engine.costs()[1] == [], "it is counted once"


def test_a_question_by_itself_raises_where_its_batch_is_applied() -> None:
    with pytest.raises(ValueError, match="broken for a test"):
        Ends(raises_at=1).on_batch(batch_of(ended(1)))


def test_what_ended_is_known_until_its_step_completes_and_no_longer() -> None:
    engine = Engine()
    engine.on_batch(batch_of(*ARRIVED, RequestScheduled(1, 0, 0), ended(1), finished(1)))
    assert (engine.num_pending, len(engine.calls.waiting)) == (2, 0)
    engine.on_batch(batch_of(step(emitted=[1])))
    engine.check()
    assert engine.num_pending == 0
    assert engine.calls.num_traced == 0


def test_a_number_that_begins_again_in_the_step_in_which_it_ended_is_kept() -> None:
    engine = Engine()
    engine.on_batch(batch_of(*ARRIVED, ended(1), finished(1), *ARRIVED, step()))
    engine.check()
    assert (len(engine.calls.requests), len(engine.calls.sequences)) == (1, 1)
    assert engine.calls.num_traced == 1


@pytest.mark.parametrize("met_by", [PREEMPTED, RESUMED])
def test_what_began_before_a_gap_is_met_again_and_has_no_arrival(
    met_by: RequestPreempted | RequestResumed,
) -> None:
    engine = Engine()
    fold = Ends()
    fold.join(engine)
    engine.on_batch(batch_of(*ARRIVED))
    engine.on_gap()
    assert engine.num_pending == 0
    engine.on_batch(batch_of(met_by))
    sequence = engine.calls.sequences[1]
    assert (sequence.added, sequence.request.arrived, sequence.request.trace_id) == (None, None, "")
    assert len(engine.calls.swapped) == (met_by is PREEMPTED)
    engine.on_batch(batch_of(ended(1), ended(2), step()))
    engine.check()
    assert fold.seen == [(1, True), (2, False)]


def test_one_that_joins_late_reads_what_the_state_has() -> None:
    engine = Engine()
    engine.on_batch(batch_of(*ARRIVED))
    fold = Ends()
    fold.join(engine)
    engine.on_batch(batch_of(ended(1)))
    assert (fold.arrivals, fold.seen) == (0, [(1, True)])
    engine.detach(fold)
    engine.on_batch(batch_of(ended(1)))
    assert len(fold.seen) == 1


def test_a_measured_batch_has_the_same_effects_and_every_question_a_cost() -> None:
    engine = Engine()
    folds = (Requests(), Latency(), Tenants(), GenAi())
    for fold in folds:
        fold.join(engine)
    for number in range(3 * MEASURED):
        events = (RequestArrived(number, 9, 8), RequestScheduled(number, 5, 0))
        engine.on_batch(Batch(number, 0, [*events, FirstToken(number, 7), finished(number)]))
    requests, latency, tenants, _ = folds
    assert requests.finished["stop"] == sum(latency.queue.counts) == 3 * MEASURED
    assert tenants.unattributed == 0
    assert engine.costs()[0].keys() == {fold.name for fold in folds}
