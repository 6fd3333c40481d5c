"""Frames and batches: what was written is read, and nothing else raises anything but FrameError."""

import contextlib
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    CONTRACT_VERSION,
    Batch,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    EngineEvent,
    FirstToken,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RequestArrived,
    RequestResumed,
    StepCompleted,
)
from kvscope_events.wire.frame import (
    HAS_HELLO,
    HAS_STATE,
    HEADER_BYTES,
    MAGIC,
    MAX_MESSAGE_BYTES,
    FrameError,
    FrameKind,
    RequestKind,
    decode_batch,
    encode_batch,
    flags_of,
    pack_header,
    pack_request,
    read_frames,
    read_request,
)
from tests.events.producers import SNAPSHOT, forged, frame, hello

SESSION = b"session!"
MESSAGE = frame([FirstToken(1, 0)], 0, SESSION) + frame([FirstToken(2, 0)], 1, SESSION)
GROUP = st.none() | st.integers(0, 63)


def strategy_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation; integers as MessagePack has them, all within their bounds."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is int:
        return st.integers(-(2**63), 2**64 - 1)
    if kind is float:
        return st.floats(allow_nan=False)
    if origin is Annotated:
        bounds = arguments[1]
        if arguments[0] is int:
            assert bounds.gt is None, "the contract's whole numbers have a smallest one"
            least = -(2**63) if bounds.ge is None else bounds.ge
            most = 2**64 - 1 if bounds.lt is None else bounds.lt - 1
            return st.integers(least, most if bounds.le is None else bounds.le)
        if arguments[0] is float:
            return st.floats(bounds.gt, bounds.lt, exclude_min=True, exclude_max=True)
        if bounds.pattern:
            return st.from_regex(bounds.pattern)
        return strategy_of(arguments[0])  # none is longer here than it may be
    if origin is list:
        return st.lists(strategy_of(arguments[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(st.text(max_size=4), strategy_of(arguments[1]), max_size=3)
    if origin in (Union, UnionType):
        return st.one_of(*map(strategy_of, arguments))
    if kind is PoolSnapshot:
        return st.integers(1, 4).flatmap(snapshots)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        values = {name: strategy_of(hints[name]) for name in kind.__struct_fields__}
        if kind is PoolCreated:
            return values["num_blocks"].flatmap(
                lambda size: st.builds(
                    kind, **values | {"num_blocks": st.just(size), "reserved": st.integers(0, size)}
                )
            )
        return st.builds(kind, **values)
    if kind is bytes:
        return st.binary(max_size=64)
    if kind is str:
        return st.text(max_size=32)
    return st.from_type(kind)


@st.composite
def snapshots(draw: st.DrawFn, num_blocks: int) -> PoolSnapshot:
    """Consistent snapshots of a pool of this size."""
    reserved = draw(st.integers(0, num_blocks))
    name = st.binary(max_size=64)
    ref_counts, hashes, cached = [0] * reserved, [None] * reserved, []
    for block in range(reserved, num_blocks):
        ref_counts.append(draw(st.integers(0, 2**62 - 1)))
        hashes.append(draw(st.none() | name))
        if not ref_counts[block] and hashes[block] is not None:
            cached.append(block)
    return PoolSnapshot(
        *(num_blocks, 16, 0, reserved, ref_counts, hashes, draw(st.permutations(cached))),
        largest_step=draw(st.none() | st.integers(0, 2**62 - 1)),
        block_groups=draw(st.just([]) | st.lists(GROUP, min_size=num_blocks, max_size=num_blocks)),
    )


POOL = PoolSnapshot(4, 16, 0, 1, [0, 2, 0, 0], [None, b"a", b"b", None], [2])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"lru": [1]}, "referenced or empty block in the LRU"),
        ({"lru": [3]}, "referenced or empty block in the LRU"),
        ({"lru": [2, 2]}, "twice in the LRU"),
        ({"ref_counts": [1, 2, 0, 0]}, "reserved blocks in use"),
        ({"hashes": [b"z", b"a", b"b", None]}, "reserved blocks in use"),
        ({"lru": [4]}, "orders others by age"),
        ({"block_groups": [None, 1]}, "a snapshot of 4 blocks with the groups of 2"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_malformed(
    changes: dict[str, Any], says: str
) -> None:
    good = Batch(1, 2, [POOL])
    assert decode_batch(encode_batch(good)) == (good, 0)
    bad = Batch(1, 2, [forged(POOL, **changes)])
    with pytest.raises(FrameError, match=says):
        decode_batch(encode_batch(bad))


@given(strategy_of(Batch))
def test_every_batch_is_read_as_it_was_written(batch: Batch) -> None:
    assert decode_batch(encode_batch(batch)) == (batch, 0)


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_the_wire_and_no_other(garbage: bytes) -> None:
    with contextlib.suppress(FrameError):
        list(read_frames(garbage))
    with contextlib.suppress(FrameError):
        decode_batch(garbage)


@given(st.binary(max_size=60), st.integers(0, len(MESSAGE)))
def test_a_frame_with_garbage_in_it_is_an_error_of_the_wire_and_no_other(
    garbage: bytes, at: int
) -> None:
    with contextlib.suppress(FrameError):
        for read in read_frames(MESSAGE[:at] + garbage + MESSAGE[at:]):
            decode_batch(read.payload)


@given(st.integers(1, len(MESSAGE) - 1))
def test_a_message_cut_short_is_malformed(length: int) -> None:
    if length == len(frame([FirstToken(1, 0)], 0, SESSION)):
        return  # the first frame alone
    with pytest.raises(FrameError, match=r"cut short"):
        list(read_frames(MESSAGE[:length]))


def test_deep_nesting_is_malformed() -> None:
    for payload in (b"\x91" * 5_000_000, b"\x93\x00\x00" + b"\x91" * 5_000_000):
        with pytest.raises(FrameError, match="cannot be read"):
            decode_batch(payload)


def test_a_frame_of_another_contract_is_named_before_anything_is_decoded() -> None:
    theirs = MAGIC + (CONTRACT_VERSION + 1).to_bytes(2, "little") + b"whatever they like"
    with pytest.raises(FrameError, match="the peer speaks contract 2, this reader 1") as refused:
        list(read_frames(theirs))
    assert refused.value.kind == "contract"


def test_a_length_over_the_limit_is_too_large() -> None:
    header = pack_header(FrameKind.BATCH, 0, SESSION, 0, MAX_MESSAGE_BYTES + 1)
    with pytest.raises(FrameError) as refused:
        list(read_frames(header))
    assert refused.value.kind == "too_large"


def test_events_of_a_newer_producer_are_left_out_and_counted() -> None:
    known = msgspec.to_builtins(FirstToken(7, 1))
    newer = [9, 8, [["Unheard", 1, {"of": b"x"}], known, ["Of", []]], 3, 0, "a field more"]
    batch, unknown = decode_batch(msgspec.msgpack.encode(newer))
    assert (batch, unknown) == (Batch(9, 8, [FirstToken(7, 1)], 3), 2)


def test_an_event_with_an_unknown_word_is_left_out_alone() -> None:
    refused = ["RequestRejected", "out_of_patience"]
    newer = [9, 8, [refused, msgspec.to_builtins(FirstToken(7, 1))]]
    assert decode_batch(msgspec.msgpack.encode(newer)) == (Batch(9, 8, [FirstToken(7, 1)]), 1)


def test_an_event_with_a_value_of_another_type_makes_its_batch_malformed() -> None:
    newer = [9, 8, [["Unheard"], ["FirstToken", "seven", 1]]]
    with pytest.raises(FrameError, match="Expected `int`"):
        decode_batch(msgspec.msgpack.encode(newer))


def test_a_field_more_in_a_known_event_is_ignored() -> None:
    newer = [9, 8, [["FirstToken", 7, 1, "more"]]]
    assert decode_batch(msgspec.msgpack.encode(newer)) == (Batch(9, 8, [FirstToken(7, 1)]), 0)


WITH_GROUPS: tuple[tuple[EngineEvent, int], ...] = (
    (hello(), 18),
    (RequestArrived(1, 2, 3, "tenant", adapter="law"), 8),
    (PrefixLookup(1, 40, [b"a", b"b"], 1, False, 8, "host", [32, 16]), 6),
    (BlocksAllocated(1, [2], "decode", 1), 3),
    (BlocksShared(1, [2], "prefix_hit", 0), 3),
    (BlocksReleased(1, [2], [], [], "out_of_window", 1), 5),
    (RequestResumed(1, 1, 5, 9, 7, 0, 4, "remote"), 6),
    (StepCompleted(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], 0, 0, None, 0, 4, 3), 16),
    (
        PoolCreated(4, 16, 0, groups=[CacheGroup("state", 64, None, 3, 4096, True)], alignment=64),
        9,
    ),
    (PoolSnapshot(1, 16, 0, 0, [0], [None], [], alignment=64, retention=0, block_groups=[1]), 14),
)
"""Events, and how many fields each had before pools of several groups were reported."""


@pytest.mark.parametrize(("event", "fields"), WITH_GROUPS)
def test_a_recording_from_before_groups_is_read(event: EngineEvent, fields: int) -> None:
    written: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    older = [9, 8, [written[: 1 + fields]]]
    batch, unknown = decode_batch(msgspec.msgpack.encode(older))
    (read,) = batch.events
    assert unknown == 0
    names = event.__struct_fields__
    assert [getattr(read, name) for name in names[:fields]] == [
        getattr(event, name) for name in names[:fields]
    ]
    defaults = msgspec.structs.fields(type(event))[fields:]
    for field in defaults:
        make = field.default_factory
        default = field.default if make is msgspec.NODEFAULT else make()
        assert getattr(read, field.name) == default


@pytest.mark.parametrize(("event", "fields"), WITH_GROUPS)
def test_a_reader_from_before_groups_reads_what_it_knows(event: EngineEvent, fields: int) -> None:
    kinds = get_type_hints(type(event), include_extras=True)
    names = event.__struct_fields__[:fields]
    older = msgspec.defstruct(
        type(event).__name__,
        [(name, _before_groups(kinds[name])) for name in names],
        tag=True,
        array_like=True,
    )
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=older)
    for name in names:
        if name != "groups":
            assert getattr(read, name) == getattr(event, name)


class _Group(msgspec.Struct, array_like=True):
    """A group with the fields that it had at first."""

    kind: str
    block_size: int
    window: int | None = None


def _before_groups(kind: Any) -> Any:
    return list[_Group] if get_args(kind)[:1] == (list[CacheGroup],) else kind


@pytest.mark.parametrize(
    "event", [["FirstToken", "seven", 1], ["FirstToken"], [], [1], 5, ["BlocksAllocated", 1, [2]]]
)
def test_a_known_event_that_cannot_be_read_spoils_its_batch(event: object) -> None:
    with pytest.raises(FrameError, match="cannot be read"):
        decode_batch(msgspec.msgpack.encode([9, 8, [event]]))


def test_flags_say_where_a_reader_may_begin() -> None:
    step = StepCompleted(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], 0, 0)
    created = PoolCreated(1, 16, 0)
    worker = hello(tells=("DeviceMemorySampled",))
    for events, flags in (
        ([], 0),
        ([step, BlocksAllocated(1, [2], "decode")], 0),
        ([hello(), step], HAS_HELLO),
        ([created], HAS_STATE),
        ([step, hello(), SNAPSHOT], HAS_HELLO | HAS_STATE),
        ([worker], HAS_HELLO | HAS_STATE),  # has no pool: nothing more will be known
    ):
        assert flags_of(Batch(0, 0, events)) == flags


def test_requests_of_peers_are_read_or_ignored() -> None:
    request = pack_request(RequestKind.REPLAY, SESSION, 17)
    assert read_request(request) == (RequestKind.REPLAY, SESSION, 17)
    assert read_request(request + b"x") is None
    assert read_request(b"") is None
    assert read_request(b"KVSX" + request[4:]) is None
    assert read_request(request[:4] + b"\xff\xff" + request[6:]) is None
    assert len(frame([], 0, SESSION)) > HEADER_BYTES
