"""Another process, a lost connection, two publishers; without sockets."""

from kvscope_exporter.sources.kv_events.tracker import (
    CONFIRM_NS,
    CONTEST_NS,
    QUIET_NS,
    REORDER_NS,
)
from tests.kv_events.hearing import Process, joined


def test_numbers_that_go_back_are_another_process() -> None:
    for replays in (True, False):
        reader, _ = joined(replays)
        again = Process("b")
        reader.hear(again.say(), again.say())
        reader.settle(again)
        assert reader.tracker.session == 2
        assert reader.texts[3:] == ["b 0", "b 1"]
        assert not reader.breaks
        assert reader.tracker.gaps == 0


def test_another_process_that_is_heard_late_is_read_from_its_beginning() -> None:
    reader, _ = joined()
    again = Process("b")
    again.say()
    reader.hear(again.say())
    assert reader.tracker.session == 2
    assert reader.tracker.behind
    assert reader.settle(again) == [0]
    assert reader.texts[3:] == ["b 0", "b 1"]
    assert not reader.breaks


def test_a_restart_that_looks_like_a_gap_is_seen_in_the_replay() -> None:
    reader, _ = joined()
    again = Process("b")
    for _ in range(9):
        again.say()
    reader.hear((8, b"b 8"))
    assert reader.settle(again) == [2, 0]
    assert reader.tracker.session == 2
    assert reader.texts[3:] == [f"b {seq}" for seq in range(9)]
    assert not reader.breaks


def test_after_a_lost_connection_the_last_message_is_compared() -> None:
    for said, asked, session in ((0, [2, 0], 2), (2, [2, 0], 2), (9, [2, 0], 2), (None, [2], 1)):
        reader, server = joined()
        if said is not None:
            server = Process("b")
            for _ in range(said):
                server.say()
        reader.reconnect()
        assert reader.tracker.behind
        assert reader.settle(server) == asked
        assert reader.tracker.session == session
        assert reader.tracker.certain
        assert reader.texts[3:] == [f"b {seq}" for seq in range(said or 0)]
        reader.hear(server.say())
        assert reader.tracker.certain


def test_after_a_lost_connection_and_without_a_replay_nothing_is_certain() -> None:
    reader, server = joined(replays=False)
    reader.reconnect()
    assert reader.tracker.behind
    assert not reader.tracker.waits, "there is nothing to wait for but the next message"
    reader.hear(server.say())
    assert reader.breaks == [("a 3", 0)]
    assert reader.tracker.certain
    reader.reconnect()
    again = Process("b")
    reader.hear(again.say())
    assert reader.tracker.session == 2
    assert len(reader.breaks) == 1, "it is heard from its beginning"


def test_a_loss_at_the_end_is_found_while_the_server_is_quiet() -> None:
    reader, server = joined()
    server.say()
    assert reader.request() is None
    reader.now_ns += QUIET_NS
    assert reader.settle(server) == [2], "once"
    assert reader.texts[-1] == "a 3"
    reader.now_ns += QUIET_NS
    server.say()
    assert reader.request() is None
    reader.now_ns += CONFIRM_NS
    assert reader.settle(server) == [3]
    reader.hear(server.say())
    assert reader.texts[-2:] == ["a 4", "a 5"]
    reader.now_ns += QUIET_NS
    assert reader.settle(None) == [5], "without an answer it is as it was"
    assert reader.tracker.certain


def test_late_answers_to_a_request_before_the_connection_was_lost_are_not_taken() -> None:
    reader, server = joined()
    server.say()
    reader.hear(server.say())
    assert reader.request() == 2
    reader.reconnect()
    reader.tracker.on_answer(3, b"x", reader.now_ns)
    reader.tracker.on_end(reader.now_ns)
    assert reader.texts == ["a 0", "a 1", "a 2"]


def test_two_publishers_on_one_endpoint_are_seen() -> None:
    reader, server = joined(replays=False, said=9)
    other = Process("b")
    for _ in range(5):
        reader.hear(other.say())
        reader.hear(server.say())
    assert reader.tracker.session == 2
    assert reader.tracker.intruders == 5
    assert reader.texts[9:] == [f"b {seq}" for seq in range(5)]
    assert reader.tracker.contested(reader.now_ns + CONTEST_NS)
    assert not reader.tracker.contested(reader.now_ns + CONTEST_NS + 1)


def test_a_restarted_server_may_reach_the_numbers_of_its_former_life() -> None:
    reader, _ = joined(replays=False, said=9)
    again = Process("b")
    reader.now_ns += CONTEST_NS + 1
    reader.hear(again.say())
    reader.hear((9, b"b 9"))
    reader.now_ns += REORDER_NS + 1
    reader.request()
    assert reader.texts[9:] == ["b 0", "b 9"]
    assert reader.tracker.intruders == 0
