"""Order, gaps, replays, restarts and second publishers, without sockets."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.sources.kv_events.recent import REMEMBERED
from exporter.sources.kv_events.tracker import (
    ANSWER_NS,
    CONFIRM_NS,
    CONTEST_NS,
    MAX_TRIES,
    PENDING_BYTES,
    QUIET_NS,
    REORDER_NS,
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


def test_a_reader_without_room_asks_again_once_there_is_some() -> None:
    reader, server = joined()
    reader.room = 4
    for _ in range(6):
        reader.hear(server.say())
    assert len(reader.taken) == 4
    assert reader.request() is None
    reader.room = 100
    assert reader.settle(server) == [3]
    assert reader.texts == [f"a {seq}" for seq in range(9)]
    assert (reader.tracker.gaps, reader.tracker.lost) == (1, 0)


def test_without_room_and_without_a_replay_messages_are_lost() -> None:
    reader, server = joined(replays=False)
    reader.room = 4
    for _ in range(6):
        reader.hear(server.say())
    reader.room = 100
    reader.request()
    reader.hear(server.say())
    assert reader.breaks == [("a 9", 5)]
    assert (reader.tracker.gaps, reader.tracker.lost) == (1, 5)


def test_what_is_held_back_is_bounded() -> None:
    reader, _ = joined()
    large = bytes(PENDING_BYTES // 4)
    for seq in range(4, 12):
        reader.hear((seq, large))
    assert sum(map(len, reader.tracker._pending.values())) <= PENDING_BYTES


def test_remembered_messages_are_bounded_and_a_duplicate_of_an_old_one_begins_anew() -> None:
    reader, server = joined(said=REMEMBERED + 10)
    reader.hear((10, server.payloads[10]))
    assert reader.tracker.session == 1
    reader.hear((5, server.payloads[5]))
    assert reader.tracker.session == 2, "safe: the state is unknown until it is replayed"
    assert reader.tracker.behind


@settings(max_examples=300, deadline=None)
@given(data=st.data(), replays=st.booleans(), buffered=st.integers(1, 12))
def test_whatever_happens_an_unbroken_run_is_one_process_word_for_word(
    data: st.DataObject, replays: bool, buffered: int
) -> None:
    """Loss, repetition, silence, lost connections and restarts, in any order."""
    reader = Reader(replays)
    server = Process("p0", buffered)
    processes = 1
    reader.tracker.on_connected()
    actions = st.sampled_from(("say", "lose", "repeat", "swap", "cut", "restart", "settle", "late"))
    for action in data.draw(st.lists(actions, max_size=40)):
        if action == "say":
            reader.hear(server.say())
        elif action == "lose":
            server.say()
        elif action == "repeat" and server.payloads:
            reader.hear((len(server.payloads) - 1, server.payloads[-1]))
        elif action == "swap":
            first, second = server.say(), server.say()
            reader.hear(second, first)
        elif action == "cut":
            reader.reconnect()
        elif action == "restart":
            processes += 1
            server = Process(f"p{processes}", buffered)
            if data.draw(st.booleans()):
                server.say()
            reader.reconnect()
        elif action == "settle":
            reader.settle(server)
        elif action == "late":
            reader.now_ns += 10 * CONTEST_NS
            reader.tracker.timed_out(reader.now_ns)
            reader.request()
    reader.now_ns += 10 * CONTEST_NS
    reader.tracker.timed_out(reader.now_ns)
    reader.settle(server)
    if data.draw(st.booleans()):
        reader.hear(server.say())
    reader.now_ns += CONFIRM_NS
    reader.settle(server)
    run: list[str] = []
    for delivery in reader.taken:
        text = delivery.payload.decode()
        name, seq = text.split()
        before = run[-1].split() if run else None
        if not delivery.broken and seq != "0":
            assert before == [name, str(int(seq) - 1)], f"{text} follows {before} unannounced"
        run.append(text)
    if replays:
        assert reader.tracker.certain
        if server.payloads and run:
            assert run[-1] == server.payloads[-1].decode()
