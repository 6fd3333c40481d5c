"""The state of requests and sequences against an engine's own, preempted and aborted ones too."""

from random import Random

import pytest

from kvscope_engine.request import SequenceState
from kvscope_events.events import PoolCreated, RequestPreempted
from kvscope_exporter.state import Requests
from tests.exporter.stream import batch_of
from tests.support.accounting import Accounting


@pytest.mark.parametrize("sequences", [1, 3])
def test_events_alone_keep_the_count_of_calls_and_of_those_that_wait(sequences: int) -> None:
    random = Random(sequences)
    preemptions = 0
    for _ in range(10):
        engine = Accounting(num_blocks=10, max_num_seqs=4, max_num_batched_tokens=40)
        fold = Requests()
        fold.on_batch(batch_of(PoolCreated(10, 4, 0)))
        seen = number = 0
        while number < 12 or engine.live:
            if number < 12:
                prompt = [random.randint(0, 2)] * random.randint(1, 10)
                engine.call([prompt], random.randint(1, 20), n=random.randint(1, sequences))
            if engine.live:
                engine.step()
            if engine.live and random.random() < 0.1:
                engine.scheduler.finish(random.choice(engine.live), "abort")
                engine.flush()
            events, seen = engine.events[seen:], len(engine.events)
            fold.on_batch(batch_of(*events, time_ns=number))
            number += 1
            preemptions += sum(isinstance(event, RequestPreempted) for event in events)
            fold.engine.check()
            known = fold.calls.sequences.values()
            unended = {sequence.number for sequence in known if not sequence.is_ended}
            assert unended == {sequence.sequence_id for sequence in engine.live}
            preempted = {s.number for s in known if s.preempted is not None and not s.is_ended}
            waiting = {s.sequence_id for s in engine.live if s.state is SequenceState.WAITING}
            assert preempted <= waiting
            calls = engine.scheduler.requests
            assert fold.waiting + fold.running == calls.num_waiting + calls.num_running
            assert (fold.oldest_since_ns is None) == (fold.waiting == 0)
            if sequences == 1:
                assert fold.waiting == calls.num_waiting
            else:  # a call that waits for a sequence not admitted yet counts as one that runs
                assert fold.waiting <= calls.num_waiting
        assert fold.waiting == fold.running == 0
    assert preemptions > 20
