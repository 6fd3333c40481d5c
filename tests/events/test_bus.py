"""The bus: nothing lost without a count, nothing that blocks the step, snapshots on demand."""

import threading
from typing import Any

import pytest

from kvscope_events.bus import EventBus, NullBus
from kvscope_events.events import Batch, EngineEvent, FirstToken, Hello, PoolSnapshot

HELLO = Hello(1, "s", "kvscope", "0", "m", "0", 1, True, [])
SNAPSHOT: list[EngineEvent] = [HELLO, PoolSnapshot(1, 16, 0, 0, [0], [None], [])]


def event(number: int) -> FirstToken:
    return FirstToken(number, 0)


def numbers(taken: tuple[Batch, int] | None) -> list[int]:
    assert taken is not None
    return [e.request for e in taken[0].events if isinstance(e, FirstToken)]


def test_a_batch_holds_one_step_in_order() -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    for step in ([1, 2], [3]):
        for number in step:
            bus.emit(event(number))
        bus.flush()
    first, second = subscription.take(), subscription.take()
    assert (numbers(first), numbers(second)) == ([1, 2], [3])
    assert first is not None
    assert second is not None
    assert (first[0].seq, second[0].seq) == (0, 1)
    assert subscription.take() is None


def test_an_empty_step_makes_no_batch() -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    bus.flush()
    assert subscription.take() is None


def test_every_subscriber_sees_every_batch() -> None:
    bus = EventBus()
    subscriptions = [bus.subscribe() for _ in range(3)]
    bus.emit(event(1))
    bus.flush()
    assert [numbers(s.take()) for s in subscriptions] == [[1]] * 3


def test_a_full_queue_drops_its_oldest_batches_and_counts_them() -> None:
    bus = EventBus()
    subscription = bus.subscribe(queue_batches=2)
    for number in range(5):
        bus.emit(event(number))
        bus.flush()
    base = subscription.take()
    assert base is not None
    assert (numbers(base), base[1]) == ([3], 0), "nobody said what came before the first"
    for number in range(5, 9):
        bus.emit(event(number))
        bus.flush()
    assert subscription.queued == 2
    after = subscription.take()
    assert after is not None
    assert (numbers(after), after[1]) == ([7], 3)
    last = subscription.take()
    assert last is not None
    assert (numbers(last), last[1]) == ([8], 0), "a loss is reported once"


def test_a_slow_subscriber_costs_the_others_nothing() -> None:
    bus = EventBus()
    slow, quick = bus.subscribe(queue_batches=1), bus.subscribe()
    for number in range(3):
        bus.emit(event(number))
        bus.flush()
    assert [numbers(quick.take()) for _ in range(3)] == [[0], [1], [2]]
    assert numbers(slow.take()) == [2]


def test_a_snapshot_comes_at_the_end_of_the_next_batch_once() -> None:
    bus = EventBus()
    bus.provide_snapshot(lambda: SNAPSHOT)
    subscription = bus.subscribe()
    subscription.request_snapshot()
    bus.emit(event(1))
    bus.flush()
    taken = subscription.take()
    assert taken is not None
    assert taken[0].events == [event(1), *SNAPSHOT]
    bus.emit(event(2))
    bus.flush()
    assert numbers(subscription.take()) == [2]


def test_a_snapshot_is_served_though_nothing_happens() -> None:
    bus = EventBus()
    bus.provide_snapshot(lambda: SNAPSHOT)
    subscription = bus.subscribe()
    subscription.request_snapshot()
    bus.flush()
    taken = subscription.take()
    assert taken is not None
    assert taken[0].events == SNAPSHOT


def test_what_is_emitted_while_a_flush_takes_the_events_is_not_lost() -> None:
    class Busy(list[Any]):
        """Events of a step, to which another thread adds one just after they were copied."""

        def __getitem__(self, index: Any) -> Any:
            copied = super().__getitem__(index)
            self.append(event(2))
            return copied

    bus = EventBus()
    subscription = bus.subscribe()
    bus._events = Busy([event(1)])  # no thread can be made to write at just this moment
    bus.flush()
    assert numbers(subscription.take()) == [1]
    bus.flush()
    assert numbers(subscription.take()) == [2], "it travels with the next step"


def test_what_other_threads_emit_is_never_lost() -> None:
    bus = EventBus()
    subscription = bus.subscribe(queue_batches=100_000)
    count = 5_000

    def emit(first: int) -> None:
        for number in range(first, first + count):
            bus.emit(event(number))

    threads = [threading.Thread(target=emit, args=(i * count,)) for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        bus.flush()
    bus.flush()
    seen = []
    while (taken := subscription.take()) is not None:
        seen += numbers(taken)
    assert sorted(seen) == list(range(3 * count))


def test_wait_returns_when_a_batch_is_there() -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    assert not subscription.wait(0.01)
    bus.emit(event(1))
    bus.flush()
    assert subscription.wait(5)


def test_a_queue_of_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="queue_batches must be positive, got 0"):
        EventBus().subscribe(queue_batches=0)


def test_the_null_bus_takes_every_event_and_delivers_none() -> None:
    bus = NullBus()
    bus.provide_snapshot(lambda: SNAPSHOT)
    bus.emit(event(1))
    bus.flush()
