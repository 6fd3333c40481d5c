"""The window of what an engine did lately, against plain loops over the whole list of events."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    Batch,
    DeviceOutOfMemory,
    Hello,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.recent import (
    NEED_BINS,
    NEED_STEPS,
    NUM_SLOTS,
    SLOT_NS,
    LoadWindow,
    Slot,
)
from tests.exporter.stream import batch_of, ended, hello, step

USABLE, BLOCK_SIZE, LIMIT = 40, 4, 4
POOL = PoolCreated(USABLE + 1, BLOCK_SIZE, 64, 1)
HELLO = hello(settings={"max_num_seqs": LIMIT})

sequences = st.integers(1, 4)
tokens = st.integers(0, 60)
events = st.one_of(
    st.builds(
        step,
        duration_ns=st.integers(0, SLOT_NS),
        running=st.integers(0, 6),
        waiting=st.integers(0, 9),
        prefill_tokens=tokens,
        decode_tokens=st.integers(0, 4),
        slots_filled=st.none() | tokens,
        active_blocks=st.integers(0, USABLE),
    ),
    st.builds(
        lambda sequence, cause: RequestPreempted(
            sequence, sequence, "recompute", cause, 9, 3, 1000
        ),
        sequences,
        st.sampled_from(["out_of_blocks", "out_of_memory"]),
    ),
    st.builds(
        lambda sequence, count: RequestResumed(sequence, sequence, count, 4, 9), sequences, tokens
    ),
    st.builds(ended, sequences, reason=st.sampled_from(["stop", "abort"]), output_tokens=tokens),
    st.builds(DeviceOutOfMemory, st.none() | st.just(640), st.just("retried"), st.integers(0, 64)),
)
pauses = st.sampled_from([0, SLOT_NS // 3, SLOT_NS, 7 * SLOT_NS, NUM_SLOTS * SLOT_NS])


@st.composite
def histories(draw: st.DrawFn) -> list[Batch]:
    time_ns, batches = 1000, [batch_of(HELLO, POOL, time_ns=1000)]
    for seq, pause in enumerate(draw(st.lists(pauses, max_size=30)), 1):
        time_ns += pause
        happened = draw(st.lists(events, max_size=4))
        batches.append(batch_of(*happened, seq=seq, time_ns=time_ns))
    return batches


def plain(batches: list[Batch]) -> tuple[float, Slot]:
    """The same, from all events at once."""
    flat = [(batch.time_ns, event) for batch in batches for event in batch.events]
    steps = [at for at, event in flat if isinstance(event, StepCompleted)]
    if not steps:
        return 0.0, Slot(0)
    now = steps[-1]
    first = now // SLOT_NS - NUM_SLOTS + 1
    inside = [(at, event) for at, event in flat if at // SLOT_NS >= first]
    sums: Counter[str] = Counter()
    total = Slot(0)
    needs = [0] * NEED_BINS
    victims: dict[int, Any] = {}
    for at, event in flat:
        counts = at // SLOT_NS >= first
        if isinstance(event, SequenceFinished):
            victims.pop(event.sequence, None)
        elif isinstance(event, RequestPreempted):
            victims[event.sequence] = event.cause
        elif isinstance(event, RequestResumed):
            cause = victims.pop(event.sequence, None)
            if cause is not None and counts:
                found = total.recomputed_tokens
                found[cause] = found.get(cause, 0) + event.recompute_tokens
        elif isinstance(event, StepCompleted):
            need: float = event.active_blocks
            if event.running and event.waiting:
                more = min(event.waiting, event.running, max(0, LIMIT - event.running))
                need += more * event.active_blocks / event.running
            if counts:
                needs[min(int(need * NEED_STEPS / USABLE), NEED_BINS - 1)] += event.duration_ns
    for _, event in inside:
        match event:
            case StepCompleted():
                took = event.duration_ns
                sums.update(
                    steps=1,
                    busy_ns=took,
                    prefill_tokens=event.prefill_tokens,
                    running_ns=event.running * took,
                    waiting_ns=event.waiting * took,
                    active_ns=event.active_blocks * took,
                )
                if event.slots_filled is not None:
                    unfilled = event.active_blocks * BLOCK_SIZE - event.slots_filled
                    sums["unfilled_ns"] += unfilled * took
                total.most_active = max(total.most_active, event.active_blocks)
            case RequestPreempted():
                total.preemptions[event.cause] = total.preemptions.get(event.cause, 0) + 1
            case SequenceFinished():
                sums.update(finished=1, finished_tokens=event.prompt_tokens + event.output_tokens)
                if event.reason in ("stop", "length"):
                    sums.update(output_tokens=event.output_tokens, max_tokens=event.max_tokens)
            case DeviceOutOfMemory():
                sums["out_of_memory"] += 1
                total.largest_failure = max(total.largest_failure, event.step_tokens)
                if event.step_tokens and event.wanted_bytes:
                    wanted = event.wanted_bytes / event.step_tokens
                    total.wanted_per_token = max(total.wanted_per_token, wanted)
    for name, value in sums.items():
        setattr(total, name, value)
    sizes = [e.prefill_tokens + e.decode_tokens for _, e in inside if isinstance(e, StepCompleted)]
    total.largest_step = max(sizes, default=0)
    total.largest_steps = sizes.count(total.largest_step)
    total.need_ns = needs
    seen = [at for at, event in flat if not isinstance(event, Hello | PoolCreated | RequestResumed)]
    # Events that change no slot begin no window; a resumption does if its preemption is known.
    began = min(seen, default=None)
    seconds = 0.0 if began is None else (now - max(began, first * SLOT_NS)) / 1e9
    return seconds, total


@given(histories())
def test_it_is_what_plain_loops_count(batches: list[Batch]) -> None:
    fold = LoadWindow()
    for batch in batches:
        fold.on_batch(batch)
    seconds, total = fold.window()
    expected_seconds, expected = plain(batches)
    assert total == expected
    assert seconds == expected_seconds


@pytest.mark.parametrize("is_gap", [True, False])
def test_lost_batches_and_another_pool_empty_the_window(is_gap: bool) -> None:
    fold = LoadWindow()
    preempted = RequestPreempted(1, 1, "recompute", "reset", 9, 3, 1)
    fold.on_batch(batch_of(POOL, step(running=1), preempted))
    assert fold.window()[1].steps == 1
    if is_gap:
        fold.on_gap()
    else:
        fold.on_batch(batch_of(POOL))
    assert fold.window() == (0.0, Slot(0))
    fold.on_batch(batch_of(step(running=1), RequestResumed(1, 1, 9, 4, 9)))
    assert not fold.window()[1].recomputed_tokens, "of a preemption before the window"
