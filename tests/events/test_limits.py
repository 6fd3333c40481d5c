"""Values that no engine has: a batch with one of them is malformed, and takes no memory."""

import math
import resource
import struct
from typing import Any

import msgspec
import pytest

from kvscope_events.event import Fact
from kvscope_events.events import (
    Batch,
    BlocksCached,
    DeviceMemorySampled,
    EngineEvent,
    ObserverStopped,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    RequestArrived,
    StartProgressed,
    StartupProfiled,
    StepCompleted,
    TierCreated,
)
from kvscope_events.limits import MAX_BLOCKS, MAX_EVENTS, MAX_LABEL, count_of, label_of
from kvscope_events.wire.frame import FrameError, decode_batch, encode_batch
from tests.events.producers import forged, hello

STEP = StepCompleted(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], 0, 0)
POOL = PoolCreated(8, 16, 0)
ONE = PoolSnapshot(1, 16, 0, 0, [0], [None], [])
IMPOSSIBLE_FACTS: tuple[tuple[EngineEvent, dict[str, object]], ...] = (
    (POOL, {"num_blocks": MAX_BLOCKS + 1}),
    (POOL, {"num_blocks": 2**40}),
    (POOL, {"num_blocks": -1}),
    (POOL, {"block_size": 0}),
    (POOL, {"reserved": 9}),
    (POOL, {"memory_terms": {f"term{number}": 1 for number in range(65)}}),
    (POOL, {"memory_terms": {"total": -(2**62) - 1}}),
    (POOL, {"memory_terms": {"total": 2**62}}),
    (POOL, {"longest_sequences": math.nan}),
    (POOL, {"longest_sequences": math.inf}),
    (ONE, {"reserved": 2}),
    (hello(), {"model_name": "m" * (MAX_LABEL + 1)}),
    (hello(), {"tells": ("Unheard",) * 257}),
    (hello(), {"tells": ("x" * 65,)}),
    (hello(), {"settings": {"size": 1e18}}),
    (hello(), {"gpu_memory_utilization": math.nan}),
    (DeviceMemorySampled(1, None, 0, 0), {"device_uuid": "GPU-" + "0" * MAX_LABEL}),
    (DeviceMemorySampled(1, None, 0, 0), {"weights_bytes": -1}),
    (StartProgressed({}), {"began_ns": {"import": 2**62}}),
    (StartupProfiled({}), {"memory_terms": {"x" * 65: 1}}),
    (TierCreated("host", 1, 1, 1), {"block_size": 0}),
    (PoolCounted(1, 1, 1, 0, 0, 0, 0), {"cached": -1}),
)
UNWRITABLE: tuple[tuple[EngineEvent, dict[str, object]], ...] = (
    (POOL, {"memory_terms": {"total": -(2**63) - 1}}),
    (POOL, {"bytes_per_block": 2**64}),
    (hello(), {"model_name": "\ud800"}),
    (hello(), {"pid": 2**64}),
    (hello(), {"settings": {"size": "large", "object": object()}}),
    (ObserverStopped(""), {"reason": "\udfff"}),
)
"""Facts that have no bytes, even if a reader would take them."""
IMPOSSIBLE_STEPS: tuple[tuple[EngineEvent, dict[str, object]], ...] = (
    (ONE, {"num_blocks": 2}),
    (ONE, {"hashes": [None, None]}),
    (ONE, {"ref_counts": [-1]}),
    (ONE, {"hashes": [b"name"], "lru": [1]}),
    (ONE, {"hashes": [b"name"], "lru": [-1]}),
    (BlocksCached(1, [1], [b"x"], None), {"hashes": [b"x" * 65]}),
    (RequestArrived(1, 1, 1), {"trace_id": "f" * 200}),
    (RequestArrived(1, 1, 1), {"trace_id": '"' * 32}),
    (RequestArrived(1, 1, 1), {"trace_id": "f" * 32 + "\n"}),
    (RequestArrived(1, 1, 1), {"prompt_tokens": -1}),
    (STEP, {"prefill_tokens": -1}),
    (STEP, {"duration_ns": -1}),
    (STEP, {"duration_ns": 2**64 - 1}),
    (STEP, {"active_blocks": MAX_BLOCKS + 1}),
    (RequestArrived(1, 1, 1), {"max_tokens": 2**62}),
)
"""Events of steps and blocks, which are not checked when they are made."""


def _name(value: object) -> str:
    return str(msgspec.to_builtins(value, enc_hook=repr))[:40]


@pytest.mark.parametrize(("event", "changes"), IMPOSSIBLE_FACTS + IMPOSSIBLE_STEPS, ids=_name)
def test_an_event_beyond_its_bounds_spoils_its_batch(
    event: EngineEvent, changes: dict[str, object]
) -> None:
    payload = msgspec.msgpack.encode(Batch(0, 0, [forged(event, **changes)]))
    with pytest.raises(FrameError, match="a batch that cannot be read") as refused:
        decode_batch(payload)
    assert refused.value.kind == "malformed"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200, "one line that can be read"


@pytest.mark.parametrize(("event", "changes"), IMPOSSIBLE_FACTS + UNWRITABLE, ids=_name)
def test_a_fact_that_nobody_could_write_or_read_is_refused_where_it_is_made(
    event: EngineEvent, changes: dict[str, Any]
) -> None:
    assert isinstance(event, Fact)
    with pytest.raises(ValueError, match=f"{type(event).__name__}: |a pool of"):
        msgspec.structs.replace(event, **changes)


@pytest.mark.parametrize("total", [-(2**62), 2**62 - 1])
def test_all_bytes_that_can_be_written_are_read(total: int) -> None:
    batch = Batch(0, 0, [PoolCreated(8, 16, 0, memory_terms={"total": total})])
    assert decode_batch(encode_batch(batch)) == (batch, 0)


def test_whatever_number_a_client_chooses_is_one_that_can_be_read() -> None:
    for chosen in (None, -5, 0, 2**63 - 1, 10**30):
        batch = Batch(0, 0, [RequestArrived(1, 1, count_of(chosen))])
        assert decode_batch(encode_batch(batch)) == (batch, 0)


def test_a_foreign_name_becomes_one_that_can_be_written() -> None:
    told = hello(label_of("model \ud83d" + "x" * MAX_LABEL))
    assert told.model_name.startswith("model ?xx")
    assert decode_batch(encode_batch(Batch(0, 0, [told])))[0].events == [told]


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


@pytest.mark.alone
@pytest.mark.parametrize("event", [b"\xc0", b"\x91\xa1x"], ids=["no event", "unknown event"])
def test_a_batch_of_millions_of_events_takes_no_memory(event: bytes) -> None:
    count = 10_000_000
    payload = b"\x93\x00\x00\xdd" + struct.pack(">I", count) + event * count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FrameError, match=f"length <= {MAX_EVENTS}"):
        decode_batch(payload)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 100
