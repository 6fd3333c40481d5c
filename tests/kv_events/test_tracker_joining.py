"""Late joiners, and what is certain then; without sockets."""

from kvscope_exporter.sources.kv_events.tracker import (
    ANSWER_NS,
)
from tests.kv_events.hearing import Process, Reader, joined


def test_messages_come_in_order_and_once() -> None:
    reader, server = joined()
    first, second = server.say(), server.say()
    reader.hear(second, first, second, first, (0, b"a 0"))
    assert reader.texts == ["a 0", "a 1", "a 2", "a 3", "a 4"]
    assert reader.tracker.certain
    assert (reader.tracker.session, reader.tracker.gaps, reader.tracker.lost) == (1, 1, 0)


def test_who_comes_late_asks_for_the_whole_history_at_once() -> None:
    reader, server = Reader(), Process("a")
    for _ in range(4):
        server.say()
    reader.tracker.on_connected()
    assert reader.tracker.behind
    reader.hear(server.say())
    assert reader.texts == []
    assert reader.settle(server) == [0]
    assert reader.texts == ["a 0", "a 1", "a 2", "a 3", "a 4"]
    assert not reader.breaks
    assert reader.tracker.certain
    assert reader.tracker.gaps == 0


def test_who_comes_too_late_knows_that_the_beginning_is_missing() -> None:
    reader, server = Reader(), Process("a", buffered=2)
    for _ in range(5):
        server.say()
    reader.tracker.on_connected()
    assert reader.settle(server) == [0]
    assert reader.breaks == [("a 3", 3)]
    assert reader.texts == ["a 3", "a 4"]
    assert reader.tracker.lost == 0, "what was said before it joined is not its loss"


def test_a_server_that_has_said_nothing_is_known() -> None:
    reader = Reader()
    reader.tracker.on_connected()
    assert not reader.tracker.certain
    assert reader.settle(Process("a")) == [0]
    assert reader.tracker.certain
    assert reader.tracker.session == 1


def test_without_an_answer_a_server_that_says_nothing_is_not_known() -> None:
    for replays in (True, False):
        reader = Reader(replays)
        reader.tracker.on_connected()
        reader.settle(None)
        assert not reader.tracker.certain
        reader.hear((0, b"x"))
        assert reader.tracker.certain


def test_a_replay_that_breaks_off_leaves_doubt() -> None:
    reader, server = joined()
    reader.reconnect()
    assert reader.request() == 2
    reader.tracker.on_answer(2, b"a 2", reader.now_ns)
    reader.now_ns += ANSWER_NS + 1
    assert reader.tracker.timed_out(reader.now_ns)
    reader.settle(None)
    assert not reader.tracker.certain
    reader.hear(server.say())
    assert reader.tracker.certain


def test_without_a_replay_only_the_first_message_is_a_beginning() -> None:
    early, late = Reader(replays=False), Reader(replays=False)
    for reader, seq in ((early, 0), (late, 5)):
        reader.tracker.on_connected()
        reader.hear((seq, b"x"), (seq + 1, b"y"))
        assert reader.texts == ["x", "y"]
        assert reader.request() is None
    assert not early.breaks
    assert late.breaks == [("x", 5)]
