"""The reading state machine: it delivers what was sent, or names a gap and goes on at a state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.wire.frame import (
    HAS_HELLO,
    HAS_STATE,
    Frame,
    FrameError,
    FrameKind,
    RequestKind,
    pack_header,
    read_frames,
)
from kvscope_events.wire.ring import Ring, SentMessage
from kvscope_events.wire.stream import SNAPSHOT_RETRY_NS, Delivery, Stream

BASE = HAS_HELLO | HAS_STATE


def batch(seq: int, flags: int = 0, session: bytes = b"s" * 8) -> Frame:
    return Frame(FrameKind.BATCH, flags, session, seq, b"")


def heartbeat(seq: int, session: bytes = b"s" * 8) -> Frame:
    return Frame(FrameKind.HEARTBEAT, 0, session, seq, b"")


def gone(seq: int) -> Frame:
    return Frame(FrameKind.GONE, 0, b"s" * 8, seq, b"")


class _Reader:
    """A stream that keeps what it delivers; `room` is what it still takes."""

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []
        self.room = 1_000_000
        self.stream = Stream(self._take)

    def _take(self, delivery: Delivery) -> bool:
        if len(self.delivered) >= self.room:
            return False
        self.delivered.append(delivery)
        return True

    @property
    def seqs(self) -> list[tuple[int, int]]:
        return [(delivery.seq, delivery.lost) for delivery in self.delivered]


def test_batches_are_delivered_in_order_and_once() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(1), batch(1), batch(0), batch(2)])
    assert reader.seqs == [(0, 0), (1, 0), (2, 0)]
    assert not reader.stream.behind
    assert reader.stream.request(0) is None


def test_a_missing_batch_is_asked_for_and_delivered_in_its_place() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(2), batch(3)])
    assert reader.stream.behind
    assert reader.stream.request(0) == (RequestKind.REPLAY, 1)
    assert reader.stream.request(1) is None, "one answer at a time"
    reader.stream.on_answer([batch(1), batch(2), batch(3)])
    reader.stream.on_stream([batch(4)])
    assert reader.seqs == [(n, 0) for n in range(5)]
    assert (reader.stream.gaps, reader.stream.behind) == (1, False)


def test_a_request_that_got_lost_is_repeated() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(2)])
    assert reader.stream.request(0) is not None
    assert reader.stream.request(10**9) == (RequestKind.REPLAY, 1)


def test_a_heartbeat_reveals_a_lost_tail() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), heartbeat(1)])
    assert not reader.stream.behind
    reader.stream.on_stream([heartbeat(3)])
    assert reader.stream.behind
    assert reader.stream.gaps == 1


def test_what_is_gone_is_skipped_up_to_the_next_state() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(5)])
    reader.stream.on_answer([gone(1)])
    reader.stream.on_stream([batch(6), batch(7, BASE), batch(8)])
    assert reader.seqs == [(0, 0), (7, 6), (8, 0)]
    assert not reader.stream.behind


def test_a_state_that_comes_while_the_answer_is_under_way_costs_no_batch() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(2), batch(3, BASE)])
    assert reader.seqs == [(0, 0)]
    reader.stream.on_answer([batch(1), batch(2), batch(3, BASE)])
    assert reader.seqs == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_session_is_never_read_before_its_hello() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0), batch(1, HAS_STATE), batch(2)])
    assert reader.seqs == []
    assert reader.stream.request(0) == (RequestKind.SNAPSHOT, 0)
    assert reader.stream.request(SNAPSHOT_RETRY_NS - 1) is None
    reader.stream.on_stream([batch(3, BASE), batch(4)])
    assert reader.seqs == [(3, 0), (4, 0)]


def test_a_reader_that_joins_late_asks_for_the_whole_history() -> None:
    reader = _Reader()
    reader.stream.on_stream([heartbeat(40)])
    assert reader.stream.request(0) == (RequestKind.REPLAY, 0)
    reader.stream.on_answer([batch(30, BASE), *(batch(n) for n in range(31, 40))])
    assert reader.seqs == [(n, 0) for n in range(30, 40)], "nobody counted what came before"
    assert reader.stream.gaps == 0


def test_a_new_session_begins_anew_and_the_old_one_is_refused() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(1)])
    reader.stream.on_stream([batch(0, BASE, b"t" * 8)])
    assert [d.session[:1] for d in reader.delivered] == [b"s", b"s", b"t"]
    with pytest.raises(FrameError) as refused:
        reader.stream.on_stream([batch(2)])
    assert refused.value.kind == "second_publisher"
    assert len(reader.delivered) == 3


def test_a_session_that_had_ended_is_heard_again_after_a_silence() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE)])
    reader.stream.on_stream([batch(0, BASE, b"t" * 8)])
    reader.stream.forgive()
    reader.stream.on_stream([batch(1, BASE), batch(2)])
    assert reader.stream.request(0) == (RequestKind.REPLAY, 0), "it begins anew"
    reader.stream.on_answer([batch(0, BASE), batch(1, BASE), batch(2)])
    assert [(d.session[:1], d.seq) for d in reader.delivered[2:]] == [
        (b"s", 0),
        (b"s", 1),
        (b"s", 2),
    ]


def test_what_is_gone_is_not_asked_for_all_the_time() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(5)])
    assert reader.stream.request(0) is not None
    reader.stream.on_answer([gone(1)])
    assert reader.stream.request(1) is None


def test_a_reader_without_room_loses_nothing() -> None:
    reader = _Reader()
    reader.room = 2
    reader.stream.on_stream([batch(0, BASE), batch(1), batch(2), batch(3, BASE)])
    assert reader.stream.behind
    reader.room = 3
    reader.stream.on_answer([batch(2), batch(3, BASE)])
    reader.room = 100
    assert reader.stream.request(0) == (RequestKind.REPLAY, 3)
    reader.stream.on_answer([batch(3, BASE)])
    reader.stream.on_stream([batch(4)])
    assert reader.seqs == [(n, 0) for n in range(5)]
    assert reader.stream.gaps == 0, "nothing was missing"


def test_a_reader_that_waited_for_room_goes_on_at_a_state_that_no_ring_holds() -> None:
    reader = _Reader()
    reader.room = 1
    reader.stream.on_stream([batch(0, BASE), batch(1), batch(2)])
    reader.stream.on_answer([gone(1)])
    reader.stream.on_stream([batch(3, BASE)])
    assert reader.seqs == [(0, 0)]
    reader.room = 1_000_000
    reader.stream.on_stream([batch(4), batch(5, BASE), batch(6)])
    assert reader.seqs == [(0, 0), (5, 4), (6, 0)]
    assert not reader.stream.behind


def test_a_message_larger_than_the_ring_pushes_nothing_out() -> None:
    ring = Ring(4_000)
    ring.append(SentMessage(0, 1, False, b"small"))
    ring.append(SentMessage(1, 2, True, bytes(5_000)))
    assert ring.replay(0, 100) == b"small"
    assert ring.replay(1, 100) == b""


def test_what_is_lost_while_a_reader_waits_for_room_is_a_gap() -> None:
    reader = _Reader()
    reader.room = 1
    reader.stream.on_stream([batch(0, BASE), batch(1), batch(2), batch(3, BASE)])
    assert reader.stream.gaps == 0, "the ring may still have it"
    reader.room = 100
    reader.stream.on_answer([gone(1)])
    reader.stream.on_answer([batch(3, BASE)])
    reader.stream.on_stream([batch(4)])
    assert reader.seqs == [(0, 0), (3, 2), (4, 0)]
    assert (reader.stream.gaps, reader.stream.lost) == (1, 2)


def test_a_gap_that_cannot_be_filled_counts_once() -> None:
    reader = _Reader()
    reader.stream.on_stream([batch(0, BASE), batch(3), batch(4)])
    reader.stream.on_answer([gone(1)])
    reader.stream.on_stream([batch(5, BASE)])
    assert (reader.stream.gaps, reader.stream.lost) == (1, 4)


class _Publisher:
    """A model of the sending side: a real ring, and messages that the test may lose or repeat."""

    def __init__(self, session: bytes, ring_messages: int) -> None:
        self.session = session
        self._ring = Ring(ring_messages * 400)
        self.sent: list[tuple[int, int]] = []  # seq, flags
        self.next_seq = 0
        self.snapshot_due = False

    def step(self, skipped: int) -> bytes:
        self.snapshot_due = self.snapshot_due or skipped > 0
        self.next_seq += skipped
        flags = BASE if self.snapshot_due or not self.sent else 0
        self.snapshot_due = False
        seq = self.next_seq
        message = pack_header(FrameKind.BATCH, flags, self.session, seq, 0)
        self._ring.append(SentMessage(seq, seq + 1, bool(flags), message))
        self.sent.append((seq, flags))
        self.next_seq += 1
        return message

    def heartbeat(self) -> bytes:
        return pack_header(FrameKind.HEARTBEAT, 0, self.session, self.next_seq, 0)

    def answer(self, kind: RequestKind, seq: int) -> bytes:
        if kind == RequestKind.SNAPSHOT:
            self.snapshot_due = True
            return b""
        answer = self._ring.replay(seq, 120)
        if not answer and seq < self.next_seq:
            self.snapshot_due = True
            return pack_header(FrameKind.GONE, 0, self.session, seq, 0)
        return answer


OPERATIONS = st.lists(
    st.sampled_from(
        ["step", "lost step", "step twice", "hole", "heartbeat", "restart", "ask", "lost answer",
         "late answer", "full", "room"]
    ),
    max_size=60,
)  # fmt: skip


@given(OPERATIONS, st.integers(1, 12))
def test_delivered_is_sent_or_a_reported_gap_before_a_state(
    operations: list[str], ring: int
) -> None:
    reader = _Reader()
    publishers = [_Publisher(b"%08d" % 0, ring)]
    late: list[bytes] = []
    now_ns = 0
    reader.stream.on_stream(read_frames(publishers[0].step(0)))
    for operation in [*operations, "room", *["step", "heartbeat", "ask"] * 40]:
        publisher = publishers[-1]
        now_ns += 10**10
        if operation in ("step", "step twice", "lost step", "hole"):
            message = publisher.step(3 if operation == "hole" else 0)
            for _ in range({"lost step": 0, "step twice": 2}.get(operation, 1)):
                reader.stream.on_stream(read_frames(message))
        elif operation == "heartbeat":
            reader.stream.on_stream(read_frames(publisher.heartbeat()))
        elif operation == "restart":
            publishers.append(_Publisher(b"%08d" % len(publishers), ring))
        elif operation in ("full", "room"):
            reader.room = len(reader.delivered) if operation == "full" else 1_000_000
        elif (request := reader.stream.request(now_ns)) is not None:
            if reader.stream.session != publisher.session:
                continue
            answer = publisher.answer(*request)
            if operation == "late answer":
                late.append(answer)
            elif operation == "ask" and answer:
                reader.stream.on_answer(read_frames(answer))
                while late:
                    if stale := late.pop():
                        reader.stream.on_answer(read_frames(stale))
    _check(reader, publishers)


def _check(reader: _Reader, publishers: list[_Publisher]) -> None:
    assert not reader.stream.behind, "it caught up"
    by_session = {publisher.session: publisher for publisher in publishers}
    last: Delivery | None = None
    for delivery in reader.delivered:
        sent = dict(by_session[delivery.session].sent)
        assert sent[delivery.seq] == delivery.flags
        if last is None or last.session != delivery.session:
            assert delivery.flags & HAS_HELLO
            assert delivery.lost == 0
        else:
            assert delivery.seq == last.seq + 1 + delivery.lost
            assert not delivery.lost or delivery.flags & HAS_STATE
        last = delivery
    assert last is not None
    assert last.session == publishers[-1].session
    assert last.seq == publishers[-1].next_seq - 1
