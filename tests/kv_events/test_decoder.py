"""Every dialect says the same, and no bytes do harm"""

import os
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import Batch, NamesCleared, NamesRemoved, NamesStored
from kvscope_events.wire.frame import DECODE_ERROR_KINDS
from kvscope_exporter.sources.kv_events.decoder import (
    ERROR_KINDS,
    DecodedMessage,
    Decoder,
    Unreadable,
)
from kvscope_exporter.sources.kv_events.framing import read_answer, read_live
from kvscope_exporter.sources.kv_events.naming import name_of, tier_of
from kvscope_exporter.state.tiers import Tiers
from tests.kv_events.dialects import (
    BY_NAME,
    DIALECTS,
    Cleared,
    Dialect,
    Removed,
    Said,
    Stored,
    digest,
    encode,
    signed,
    unsigned,
)
from tests.kv_events.histories import MEDIA, Count, histories

FUZZED_FRAMES = int(os.environ.get("KVSCOPE_FUZZ_FRAMES", "3000"))
"""For each of two kinds of fuzzing; 100,000 take half a minute."""


def decoded(payload: bytes) -> DecodedMessage:
    result = Decoder().decode(payload)
    assert isinstance(result, DecodedMessage), result
    return result


def folded(dialect: Dialect, history: list[list[Said]]) -> Tiers:
    tiers, decoder = Tiers(), Decoder()
    for seq, events in enumerate(history):
        result = decoder.decode(dialect.message(events))
        assert isinstance(result, DecodedMessage), result
        tiers.on_batch(Batch(seq, 0, result.events))
    return tiers


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(history=histories)
def test_every_dialect_gives_what_a_brute_force_count_gives(
    dialect: Dialect, history: list[list[Said]]
) -> None:
    tiers = folded(dialect, history)
    count = Count(dialect).apply(history)
    assert set(tiers.tiers) == {"device", *count.stored, *count.removed}
    for name, tier in tiers.tiers.items():
        tier.check()
        assert (tier.stored, tier.removed) == (count.stored[name], count.removed[name])
        assert (tier.num_blocks, len(tier.blocks)) == (count.blocks(name), count.names(name))


def test_an_event_as_a_map() -> None:
    stored = Stored((1, 2), parent=0, medium="CPU", group=3, block_size=16)
    payload = BY_NAME["vllm-0.32"].message([stored, Removed((1,)), Cleared()], time=2.5, rank=4)
    names = [name_of(3, unsigned(1)), name_of(3, unsigned(2))]
    assert decoded(payload) == (
        [
            NamesStored("host", names, name_of(3, unsigned(0)), 16),
            NamesRemoved("device", [name_of(0, unsigned(1))]),
            NamesCleared("device"),
        ],
        *(0, 2_500_000_000, 4),
    )


def test_names_have_16_bytes_and_agree_between_spellings_of_one_hash() -> None:
    for block in range(100):
        name = name_of(1, unsigned(block))
        assert len(name) == 16
        assert name == name_of(1, signed(block)) == name_of(1, digest(block))
        assert name != name_of(0, unsigned(block))
    assert name_of(None, 5) == name_of(0, 5) == name_of(0, b"\5")
    assert name_of(0, b"a" * 12 + b"b" * 20) != name_of(0, b"a" * 12 + b"c" * 20)


def test_media_are_tiers_in_any_case_of_letters() -> None:
    for medium, tier in MEDIA.items():
        assert tier_of(medium) == tier_of(medium.lower()) == tier
    assert tier_of(None) == "device"


def test_hidden_in_a_placeholder_of_an_offload_tier_is_a_block() -> None:
    event = {"type": "BlockStored", "block_hashes": [1], "token_ids": [], "block_size": 0}
    result = decoded(encode([1.0, [{**event, "medium": "CPU"}], 0]))
    assert result.events == [NamesStored("host", [name_of(0, 1)], None, 0)]


def test_unknown_types_are_left_out_and_counted_in_either_encoding() -> None:
    events = [
        {"type": "BlockMoved", "block_hashes": {"a": 1}},
        ["BlockPinned", 1, [2]],
        {"block_hashes": [7], "type": "BlockRemoved"},
        ["BlockRemoved", [8]],
        ["AllBlocksCleared", "a medium, one day"],
    ]
    result = decoded(encode([1.0, events, 0]))
    assert result.unknown == 2
    assert result.events == [
        NamesRemoved("device", [name_of(0, 7)]),
        NamesRemoved("device", [name_of(0, 8)]),
        NamesCleared("device"),
    ]


def test_a_server_that_changes_its_encoding_is_understood_from_the_next_message_on() -> None:
    decoder = Decoder()
    for name in ("vllm-0.32", "vllm-0.23", "vllm-0.23", "sglang-0.5.23"):
        result = decoder.decode(BY_NAME[name].message([Removed((5,))]))
        assert isinstance(result, DecodedMessage)
        assert result.events == [NamesRemoved("device", [name_of(0, unsigned(5))])]


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1.0, 0.0, 1e300, 2.0**33])
def test_what_is_not_a_time_is_not_known(time: float) -> None:
    assert decoded(encode([time, [], 0])).wall_ns == 0


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        [1.0],
        [1.0, {}],
        ["now", []],
        [1.0, [], "rank"],
        {"ts": 1.0, "events": []},
        [1.0, [5]],
        [1.0, [[]]],
        [1.0, [{}]],
        [1.0, [[5]]],
        [1.0, [{"type": 5}]],
        [1.0, [["BlockStored"]]],
        [1.0, [["BlockStored", [1], None, [], "16"]]],
        [1.0, [["BlockStored", [1.5], None, [], 16]]],
        [1.0, [["BlockStored", ["hex"], None, [], 16]]],
        [1.0, [["BlockStored", [None], None, [], 16]]],
        [1.0, [["BlockStored", [1], None, [], -1]]],
        [1.0, [["BlockStored", [1], None, [], 16, None, 7]]],
        [1.0, [["BlockRemoved", [b""]]]],
        [1.0, [["BlockRemoved", [bytes(65)]]]],
        [1.0, [["BlockRemoved", 7]]],
        [1.0, [{"type": "BlockRemoved"}]],
        [1.0, [{"type": "BlockRemoved", "block_hashes": [1], "group_idx": -1}]],
        [1.0, [{"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1 << 32}]],
        [1.0, [{"type": "BlockRemoved", "block_hashes": [1], "medium": "m" * 65}]],
    ],
)
def test_foreign_content_is_malformed(content: Any) -> None:
    result = Decoder().decode(encode(content))
    assert isinstance(result, Unreadable)
    assert result.kind == "malformed"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"<!DOCTYPE html>",
        b"\x91" * 100_000,
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff",
        b"\x93\x01\x91\x82\xa4type\xacBlockRemoved\xacblock_hashes\xdd\xff\xff\xff\xff",
        b"\x93\x01\x91\x92\xacBlockRemoved\xdf\xff\xff\xff\xff",
        b"\x93\x01\x91\x81\xa4type\xa2\xff\xfe",
        b"\x93\x01\x91\x81\xa2\xff\xfe\xa1a",
        encode([1.0, [{"type": "AllBlocksCleared"}], 0])[:-1],
    ],
)
def test_foreign_bytes_are_malformed(payload: bytes) -> None:
    result = Decoder().decode(payload)
    assert isinstance(result, Unreadable)
    assert result.kind == "malformed"


def test_a_message_that_names_a_million_blocks_too_many_is_too_large() -> None:
    event = {"type": "BlockRemoved", "block_hashes": [0] * (1 << 19)}
    assert isinstance(Decoder().decode(encode([1.0, [event] * 2])), DecodedMessage)
    result = Decoder().decode(encode([1.0, [event] * 3]))
    assert isinstance(result, Unreadable)
    assert result.kind == "too_large"


def test_the_kinds_of_errors_are_kinds_of_the_page() -> None:
    assert set(ERROR_KINDS) < set(DECODE_ERROR_KINDS)


def _is_total(decoder: Decoder, tiers: Tiers, payload: bytes) -> bool:
    """Decode and fold; whether it was readable."""
    result = decoder.decode(payload)
    if isinstance(result, Unreadable):
        assert result.kind in ERROR_KINDS
        return False
    # Decoded messages keep the contract, whatever the server said.
    batch = Batch(0, 0, result.events, result.wall_ns)
    assert msgspec.msgpack.decode(encode(batch), type=Batch) == batch
    assert all(
        len(name) == 16
        for event in result.events
        if isinstance(event, NamesStored | NamesRemoved)
        for name in event.names
    )
    tiers.on_batch(batch)
    return True


def _examples(random: random.Random) -> list[bytes]:
    events = [
        *(Stored((1, 2, 3), 4, "CPU", 1), Stored((5,)), Removed((1, 2)), Removed((5,), "FS")),
        Cleared(),
    ]
    payloads = [d.message(random.choices(events, k=3)) for d in DIALECTS for _ in range(4)]
    return [*payloads, encode([1.0, [["Of", "tomorrow"], {"type": "Too"}, ["AllBlocksCleared"]]])]


def test_mutated_messages_never_raise() -> None:
    """Bits flipped, bytes replaced, cut out, repeated, and messages spliced."""
    source = random.Random(9)
    examples = _examples(source)
    decoder, tiers = Decoder(), Tiers()
    readable = 0
    for _ in range(FUZZED_FRAMES):
        payload = bytearray(source.choice(examples))
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(payload) + 1)
            end = min(len(payload), at + source.randint(1, 9))
            match source.randrange(5):
                case 0 if at < len(payload):
                    payload[at] ^= 1 << source.randrange(8)
                case 1:
                    payload[at:end] = source.randbytes(end - at)
                case 2:
                    del payload[at:end]
                case 3:
                    payload[at:at] = payload[at:end]
                case _:
                    payload[at:] = source.choice(examples)[at:]
        readable += _is_total(decoder, tiers, bytes(payload))
    assert 0 < readable < FUZZED_FRAMES
    for tier in tiers.tiers.values():
        tier.check()


def test_random_bytes_never_raise() -> None:
    """Bytes as MessagePack likes them: short containers and known names are likely."""
    source = random.Random(10)
    pieces = [encode(name) for name in ("BlockStored", "BlockRemoved", "AllBlocksCleared", "type")]
    pieces += [encode(n) for n in ("block_hashes", "medium", "GPU", 1.5, None, [1], -1, 2**64 - 1)]
    decoder, tiers = Decoder(), Tiers()
    for _ in range(FUZZED_FRAMES):
        parts = [
            source.choice(pieces)
            if source.random() < 0.7
            else source.choice((source.randbytes(2), bytes([0x90 | source.randrange(6)]), b"\x81"))
            for _ in range(source.randint(0, 12))
        ]
        _is_total(decoder, tiers, source.choice((b"", b"\x92\x01", b"\x93\x01")) + b"".join(parts))


@given(frames=st.lists(st.binary(max_size=10), max_size=6))
def test_any_frames_are_a_message_or_none(frames: list[bytes]) -> None:
    live, answer = read_live(frames), read_answer(frames)
    assert live is None or (live.seq, live.payload) == (int.from_bytes(frames[1]), frames[2])
    assert answer is None or (frames[0], answer.payload) == (b"", frames[-1])


def test_frames_of_both_replays() -> None:
    seq, end = (7).to_bytes(8, "big"), b"\xff" * 8
    for head in ([b""], [b"", b"topic"]):
        assert read_answer([*head, seq, b"x"]) == (7, b"x")
        last = read_answer([*head, end, b""])
        assert last is not None
        assert last.is_end
    assert read_live([b"topic", seq, b"x"]) == (7, b"x")
    assert read_live([b"topic", end, b"x"]) is None
