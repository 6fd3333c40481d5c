"""Every nanosecond of every request is in one part: our engine, with forks, swaps and aborts."""

import time
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.step import Step
from kvscope_events.events import (
    Batch,
    EngineEvent,
    FirstToken,
    RequestFinished,
    SequenceFinished,
)
from kvscope_exporter.state.time_ledger import PARTS, TimeLedger
from tests.support.accounting import Accounting

WAITS = [number for number, part in enumerate(PARTS) if part.startswith("wait_")]


def run(seed: int, *, samples: int, swap_blocks: int, tokens: int) -> list[Batch]:
    """Batches of an engine that is too small for its load; some clients leave."""
    random = Random(seed)
    engine = Accounting(
        num_blocks=12,
        max_num_seqs=4,
        max_num_batched_tokens=tokens,
        swap_blocks=swap_blocks,
    )
    taken = engine.bus.subscribe(1 << 16)
    step = Step(engine.scheduler, engine.pool, engine.runner, engine.bus)
    arrived = 0
    while arrived < 14 or engine.live:
        if arrived < 14 and random.random() < 0.7:
            prompt = [random.randint(0, 2)] * random.randint(1, 12)
            number = random.randint(1, samples)
            now_ns = time.monotonic_ns()
            engine.call([prompt], random.randint(1, 20), n=number, arrival_ns=now_ns)
            arrived += 1
        if engine.live:
            step.run()
            engine.flush()
        if engine.live and random.random() < 0.08:
            engine.scheduler.finish(random.choice(engine.live), "abort")
            engine.flush()
    batches = []
    while (next_ := taken.take()) is not None:
        batches.append(next_[0])
    return batches


def of_request(batches: list[Batch], request: int) -> list[Batch]:
    """The same without the events of other requests."""

    def is_its(event: EngineEvent) -> bool:
        return getattr(event, "request", request) == request

    return [
        msgspec.structs.replace(batch, events=[*filter(is_its, batch.events)]) for batch in batches
    ]


def ledger_of(batches: list[Batch]) -> TimeLedger:
    ledger = TimeLedger()
    for batch in batches:
        ledger.on_batch(batch)
    return ledger


@given(
    seed=st.integers(0, 1 << 30),
    samples=st.sampled_from([1, 3]),
    swap_blocks=st.sampled_from([0, 16]),
    tokens=st.sampled_from([8, 16, 64]),
)
def test_parts_of_a_request_add_up_to_its_duration(
    seed: int, samples: int, swap_blocks: int, tokens: int
) -> None:
    batches = run(seed, samples=samples, swap_blocks=swap_blocks, tokens=tokens)
    events = [event for batch in batches for event in batch.events]
    ended = [event for event in events if isinstance(event, RequestFinished)]
    first = {event.request: event.elapsed_ns for event in events if isinstance(event, FirstToken)}
    whole = ledger_of(batches)
    assert whole.num_pending == 0
    assert sum(whole.first_token) + sum(whole.rest) == sum(each.elapsed_ns for each in ended)
    total = [0] * len(PARTS)
    for end in ended:
        ledger = ledger_of(of_request(batches, end.request))
        assert min(*ledger.first_token, *ledger.rest) >= 0
        to_first = first.get(end.request, end.elapsed_ns)
        assert sum(ledger.first_token) == to_first
        assert sum(ledger.rest) == end.elapsed_ns - to_first
        total = [x + y for x, y in zip(total, ledger.first_token, strict=True)]
        if samples == 1:
            (sequence,) = (
                each
                for each in events
                if isinstance(each, SequenceFinished) and each.request == end.request
            )
            waited = sum(ledger.first_token[number] for number in WAITS)
            if sequence.queue_ns is not None:
                assert waited == sequence.queue_ns
            if sequence.prefill_ns is not None:
                assert sum(ledger.first_token) - waited == sequence.prefill_ns
                assert sequence.decode_ns is not None
                assert sum(ledger.rest) >= sequence.decode_ns
    assert total == whole.first_token
