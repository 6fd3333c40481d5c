"""Producers and readers for the tests of the wire."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kvscope_events.bus import EventBus
from kvscope_events.events import (
    CONTRACT_VERSION,
    Batch,
    EngineEvent,
    FirstToken,
    Hello,
    PoolSnapshot,
    RequestArrived,
)
from kvscope_events.wire.frame import FrameKind, encode_batch, flags_of, pack_header
from kvscope_events.wire.subscriber import WireSubscriber

SNAPSHOT = PoolSnapshot(1, 16, 0, 0, [0], [None], [])


def hello(
    model_name: str = "demo", tells: tuple[str, ...] = ("FirstToken", "PoolSnapshot")
) -> Hello:
    return Hello(CONTRACT_VERSION, "run", "kvscope", "0.1.0", model_name, "0", 1, True, list(tells))


def forged(event: EngineEvent, **changes: object) -> Any:
    """The event as a peer would write it that checks nothing, with any values."""
    kind = type(event)
    fields = [(name, Any) for name in kind.__struct_fields__]
    other = msgspec.defstruct(kind.__name__, fields, tag=True, array_like=True)
    return other(**msgspec.structs.asdict(event) | changes)


class Producer:
    """A bus whose steps are numbered by an event of their own; it says hello first."""

    def __init__(self, model_name: str = "demo") -> None:
        self.bus = EventBus()
        self.bus.provide_snapshot(lambda: [hello(model_name), SNAPSHOT])
        self._model_name = model_name
        self.steps = 0

    def begin(self) -> None:
        """The first batch: hello and the state."""
        self.bus.emit(hello(self._model_name))
        self.bus.emit(SNAPSHOT)
        self.bus.flush()

    def step(self, count: int = 1, padding: int = 0) -> None:
        """`padding` bytes make a batch larger."""
        for _ in range(count):
            self.bus.emit(FirstToken(self.steps, 0))
            if padding:
                self.bus.emit(RequestArrived(self.steps, 1, 1, tenant="x" * padding))
            self.bus.flush()
            self.steps += 1


def steps_of(batch: Batch) -> list[int]:
    return [event.request for event in batch.events if isinstance(event, FirstToken)]


class Heard(NamedTuple):
    """A batch as a reader took it."""

    batch: Batch
    lost: int
    session: str


def collect(
    subscriber: WireSubscriber, until: Callable[[list[Heard]], bool], seconds: float = 10.0
) -> list[Heard]:
    """The batches taken until the condition holds."""
    taken: list[Heard] = []
    deadline = time.monotonic() + seconds
    while not until(taken):
        assert time.monotonic() < deadline, f"took {len(taken)} batches in {seconds} s"
        subscriber.wait(0.05)
        while (one := subscriber.take()) is not None:
            taken.append(Heard(*one, subscriber.session))
    return taken


def frame(events: list[EngineEvent], seq: int, session: bytes) -> bytes:
    """One batch as it travels."""
    batch = Batch(seq, 0, events)
    payload = encode_batch(batch)
    return pack_header(FrameKind.BATCH, flags_of(batch), session, seq, len(payload)) + payload
