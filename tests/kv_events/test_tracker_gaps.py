"""Gaps, and the replays that fill them, or do not; without sockets."""

from kvscope_exporter.sources.kv_events.tracker import (
    ANSWER_NS,
    CONFIRM_NS,
    MAX_TRIES,
    REORDER_NS,
)
from tests.kv_events.hearing import Process, Reader, joined


def test_a_gap_is_replayed_from_the_last_message_on() -> None:
    reader, server = joined()
    server.say()
    reader.hear(server.say())
    assert reader.tracker.behind
    assert reader.settle(server) == [2]
    assert reader.texts == ["a 0", "a 1", "a 2", "a 3", "a 4"]
    assert (reader.tracker.gaps, reader.tracker.lost) == (1, 0)
    assert not reader.breaks


def test_what_the_server_no_longer_has_is_lost() -> None:
    reader, server = joined()
    server.buffered = 2
    for _ in range(5):
        server.say()
    reader.hear((7, b"a 7"))
    server.payloads.append(b"a 8")
    reader.hear((8, b"a 8"))
    reader.settle(server)
    assert reader.breaks == [("a 7", 4)]
    assert (reader.tracker.gaps, reader.tracker.lost) == (1, 4)
    assert reader.tracker.certain


def test_a_replay_that_answers_nothing_is_given_up_and_the_stream_goes_on() -> None:
    reader, server = joined()
    server.say()
    reader.hear(server.say())
    assert reader.settle(None) == [2] * MAX_TRIES
    reader.hear(server.say())
    assert reader.texts == ["a 0", "a 1", "a 2", "a 4", "a 5"]
    assert reader.breaks == [("a 4", 1)]
    assert (reader.tracker.gaps, reader.tracker.lost) == (1, 1)


def test_a_replay_that_answers_later_gives_the_whole_history() -> None:
    for buffered, session in ((10_000, 2), (3, 1)):
        reader, server = joined()
        server.buffered = buffered
        server.say()
        reader.hear(server.say())
        reader.settle(None)
        assert reader.breaks == [("a 4", 1)]
        reader.request()
        reader.now_ns += CONFIRM_NS
        assert reader.request() == 0
        reader.now_ns += ANSWER_NS + 1
        assert reader.tracker.timed_out(reader.now_ns)
        reader.now_ns += CONFIRM_NS
        assert reader.settle(server)[0] == 0
        assert reader.tracker.session == session
        if session == 2:
            assert reader.texts[4:] == [f"a {seq}" for seq in range(5)]
        reader.hear(server.say())
        assert reader.texts[-1] == "a 5"
        assert len(reader.breaks) == 1
        assert reader.tracker.certain
        assert not reader.tracker.contested(reader.now_ns)


def test_without_its_replay_a_server_heard_from_the_beginning_is_known_nevertheless() -> None:
    reader, server = Reader(), Process("a")
    reader.tracker.on_connected()
    reader.settle(None)
    reader.hear(server.say(), server.say())
    assert reader.texts == ["a 0", "a 1"]
    assert not reader.breaks


def test_a_replay_with_holes_is_asked_again() -> None:
    reader, server = joined()
    for _ in range(4):
        server.say()
    reader.hear(server.say())
    assert reader.request() == 2
    for seq, payload in server.held(2):
        if seq != 4:  # dropped by a full pipe
            reader.tracker.on_answer(seq, payload, reader.now_ns)
    reader.tracker.on_end(reader.now_ns)
    assert reader.texts[-1] == "a 3"
    assert reader.settle(server) == [3]
    assert reader.texts == [f"a {seq}" for seq in range(8)]
    assert reader.tracker.lost == 0


def test_a_missing_message_may_be_late_where_there_is_no_replay() -> None:
    reader, server = joined(replays=False)
    late, early = server.say(), server.say()
    reader.hear(early)
    assert reader.tracker.waits
    reader.request()
    reader.hear(late)
    assert reader.texts[-2:] == ["a 3", "a 4"]
    server.say()
    reader.hear(server.say())
    reader.now_ns += REORDER_NS + 1
    reader.request()
    assert reader.breaks == [("a 6", 1)]
    assert not reader.tracker.waits
    reader.hear((5, b"a 5"))
    assert reader.texts[-1] == "a 6", "too late"
    assert reader.tracker.session == 1
