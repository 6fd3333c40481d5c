"""Bounded memory, and one process word for word, whatever happens; without sockets."""

from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.sources.kv_events.recent import REMEMBERED
from kvscope_exporter.sources.kv_events.tracker import (
    CONFIRM_NS,
    CONTEST_NS,
    PENDING_BYTES,
)
from tests.kv_events.hearing import Process, Reader, joined


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
