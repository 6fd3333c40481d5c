"""Values that no engine has: a batch with one of them is malformed, and takes no memory."""

import resource
import struct

import msgspec
import pytest

from kvscope_events.events import (
    Batch,
    BlocksCached,
    DeviceMemorySampled,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    RequestArrived,
    StepCompleted,
)
from kvscope_events.limits import MAX_BLOCKS, MAX_EVENTS, MAX_LABEL
from kvscope_events.wire.frame import FrameError, decode_batch, encode_batch
from tests.events.producers import hello


def step(**fields: int) -> StepCompleted:
    least = StepCompleted(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], 0, 0)
    return msgspec.structs.replace(least, **fields)


@pytest.mark.parametrize(
    "event",
    [
        PoolCreated(MAX_BLOCKS + 1, 16, 0),
        PoolCreated(2**40, 16, 0),
        PoolCreated(-1, 16, 0),
        PoolCreated(8, 0, 0),
        PoolCreated(8, 16, 0, reserved=9),
        PoolCreated(8, 16, 0, memory_terms={f"term{number}": 1 for number in range(65)}),
        PoolSnapshot(1, 16, 0, 2, [0], [None], []),
        PoolSnapshot(2, 16, 0, 0, [0], [None], []),
        PoolSnapshot(1, 16, 0, 0, [0], [None, None], []),
        PoolSnapshot(1, 16, 0, 0, [-1], [None], []),
        PoolSnapshot(1, 16, 0, 0, [0], [b"name"], [1]),
        PoolSnapshot(1, 16, 0, 0, [0], [b"name"], [-1]),
        BlocksCached(1, [1], [b"x" * 65], None),
        hello("m" * (MAX_LABEL + 1)),
        hello(tells=("Unheard",) * 257),
        hello(tells=("x" * 65,)),
        RequestArrived(1, 1, 1, trace_id="f" * 200),
        RequestArrived(1, 1, 1, trace_id='"' * 32),
        RequestArrived(1, 1, 1, trace_id="f" * 32 + "\n"),
        RequestArrived(1, -1, 1),
        DeviceMemorySampled(1, "GPU-" + "0" * MAX_LABEL, 0, 0),
        step(prefill_tokens=-1),
        step(duration_ns=-1),
    ],
    ids=lambda event: str(msgspec.to_builtins(event))[:40],
)
def test_an_event_beyond_its_bounds_spoils_its_batch(event: EngineEvent) -> None:
    with pytest.raises(FrameError, match="a batch that cannot be read") as refused:
        decode_batch(encode_batch(Batch(0, 0, [event])))
    assert refused.value.kind == "malformed"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200, "one line that can be read"


@pytest.mark.parametrize("time_ns", [-1, 1 << 62, (1 << 64) - 1])
@pytest.mark.parametrize("clock", ["time_ns", "wall_ns"])
def test_a_time_that_no_clock_shows_spoils_its_batch(clock: str, time_ns: int) -> None:
    batch = msgspec.structs.replace(Batch(0, 0, [hello()]), **{clock: time_ns})
    with pytest.raises(FrameError, match="a batch that cannot be read: Expected `int`") as refused:
        decode_batch(encode_batch(batch))
    assert refused.value.kind == "malformed"


@pytest.mark.parametrize("time_ns", [0, (1 << 62) - 1])
def test_all_times_that_a_clock_can_show_are_read(time_ns: int) -> None:
    batch = Batch(0, time_ns, [hello()], time_ns)
    assert decode_batch(encode_batch(batch)) == (batch, 0)


def test_the_largest_pool_is_read() -> None:
    batch = Batch(0, 0, [PoolCreated(MAX_BLOCKS, 16, 0), hello("m" * MAX_LABEL)])
    assert decode_batch(encode_batch(batch)) == (batch, 0)


@pytest.mark.parametrize("event", [b"\xc0", b"\x91\xa1x"], ids=["no event", "unknown event"])
def test_a_batch_of_millions_of_events_takes_no_memory(event: bytes) -> None:
    count = 10_000_000
    payload = b"\x93\x00\x00\xdd" + struct.pack(">I", count) + event * count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FrameError, match=f"length <= {MAX_EVENTS}"):
        decode_batch(payload)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 100
