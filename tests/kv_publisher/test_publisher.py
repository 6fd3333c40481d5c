"""The publisher on real sockets: frames, numbers, gaps, replays, and who listens where."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import zmq

from engine.kv_events.publisher import KvEventPublisher
from engine.kv_events.replay import Replay
from engine.kv_events.settings import KvEventsConfig
from kvscope_events.wire.endpoint import EndpointError
from tests.kv_publisher.listening import Subscriber, events_of
from tests.support.waiting import wait_for

NAME = bytes(range(16))
Publish = Callable[..., KvEventPublisher]


@pytest.fixture
def publish() -> Iterator[Publish]:
    """Start a publisher on ports of its own; `started=False`: it only queues."""
    made: list[KvEventPublisher] = []

    def start(*, started: bool = True, **settings: Any) -> KvEventPublisher:
        here = {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0"}
        config = KvEventsConfig(
            **({"enable_kv_cache_events": True, "bind": True} | here | settings)
        )
        made.append(KvEventPublisher(config, tick_seconds=0.002))
        if started:
            made[-1].start()
        return made[-1]

    yield start
    for publisher in made:
        publisher.stop()


def say(publisher: KvEventPublisher, *numbers: int) -> None:
    """One step for each number, which removes one name."""
    for number in numbers:
        publisher.removed([number.to_bytes(16, "big")])
        publisher.end_step()


def joined(publisher: KvEventPublisher, subscriber: Subscriber) -> int:
    """Speak until the subscriber hears; the number of the last message said."""
    said = 0
    while subscriber.is_silent(0.02):
        say(publisher, 0)
        said += 1
        assert said < 1000
    while subscriber.hear()[1] < said - 1:
        pass
    return said - 1


def test_zmq_that_does_not_end_does_not_keep_the_server(
    publish: Publish, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It once waited for ever: a reader had left a moment before."""
    publisher = publish()
    context, released = publisher._sockets._context, threading.Event()

    class Stuck:
        def destroy(self, linger: int) -> None:
            released.wait()
            context.destroy(linger)

    monkeypatch.setattr(publisher._sockets, "_context", Stuck())
    monkeypatch.setattr("engine.kv_events.sockets.END_SECONDS", 0.01)
    publisher.stop()
    assert "ZMQ does not close" in caplog.text
    released.set()
    wait_for(lambda: context.closed, "the context ends")


def test_a_message_has_three_frames_and_the_fields_of_vllm(publish: Publish) -> None:
    publisher = publish(topic="kv-events")
    with Subscriber(publisher.address) as subscriber:
        last = joined(publisher, subscriber)
        parent = b"\xff" * 16
        publisher.stored([NAME, NAME[::-1]], parent, [1, 2, 3, 4], 2, "")
        publisher.stored([NAME], None, [70_000, 2], 2, "tenant")
        publisher.removed([NAME, parent])
        publisher.cleared()
        publisher.end_step()
        topic, number, payload = subscriber.hear()
    assert (topic, number) == (b"kv-events", last + 1)
    always = {"lora_id": None, "lora_name": None, "medium": "GPU", "group_idx": 0}
    stored = always | {"type": "BlockStored", "kv_cache_spec_kind": "full_attention"}
    assert events_of(payload) == [
        stored
        | {
            "block_hashes": [0x08090A0B0C0D0E0F, 0x0706050403020100],
            "parent_block_hash": 0xFFFFFFFFFFFFFFFF,
            "token_ids": [1, 2, 3, 4],
            "block_size": 2,
            "extra_keys": [None, None],
        },
        stored
        | {
            "block_hashes": [0x08090A0B0C0D0E0F],
            "parent_block_hash": None,
            "token_ids": [70_000, 2],
            "block_size": 2,
            "extra_keys": [["tenant"]],
        },
        {
            "type": "BlockRemoved",
            "block_hashes": [0x08090A0B0C0D0E0F, 0xFFFFFFFFFFFFFFFF],
            "medium": "GPU",
            "group_idx": 0,
        },
        {"type": "AllBlocksCleared"},
    ]


def test_hashes_are_whole_names_where_bytes_are_wanted(publish: Publish) -> None:
    publisher = publish(int_block_hashes=False)
    publisher.stored([NAME], NAME[::-1], [1], 1, "")
    publisher.end_step()
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: subscriber.replayed(0))
        [event] = events_of(subscriber.replayed(0)[0][2])
    assert (event["block_hashes"], event["parent_block_hash"]) == ([NAME], NAME[::-1])


def test_a_step_without_events_is_no_message(publish: Publish) -> None:
    publisher = publish()
    publisher.end_step()
    say(publisher, 1)
    publisher.end_step()
    say(publisher, 2)
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: len(subscriber.replayed(0)) == 2)
        assert [number for _, number, _ in subscriber.replayed(0)] == [0, 1]


def test_who_missed_messages_gets_them_from_the_replay(publish: Publish) -> None:
    publisher = publish(topic="t", buffer_steps=5)
    say(publisher, *range(8))
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: [n for _, n, _ in subscriber.replayed(0)] == [3, 4, 5, 6, 7])
        assert [n for _, n, _ in subscriber.replayed(6)] == [6, 7]
        assert subscriber.replayed(8) == []
        topic, _, payload = subscriber.replayed(7)[0]
        assert topic == b"t"
        assert events_of(payload)[0]["block_hashes"] == [7]


def test_a_whole_replay_arrives_however_long_it_is(publish: Publish) -> None:
    """ZMQ's own limit of a queue is a thousand messages, and a ROUTER drops beyond it."""
    publisher = publish(buffer_steps=20_000)
    say(publisher, *range(20_000))
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: len(subscriber.replayed(19_999)) == 1)
        assert [n for _, n, _ in subscriber.replayed(0)] == list(range(20_000))


def test_a_request_that_is_none_is_left_unanswered(publish: Publish) -> None:
    publisher = publish()
    say(publisher, 1)
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        subscriber.ask(b"", b"short")
        subscriber.ask(b"")
        subscriber.ask(b"", bytes(8), b"more")
        wait_for(lambda: len(subscriber.replayed(0)) == 1)


def test_between_two_long_replays_the_stream_has_its_turn() -> None:
    context = zmq.Context()
    try:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        for one in (router, dealer):
            one.setsockopt(zmq.SNDHWM, 0)
            one.setsockopt(zmq.RCVHWM, 0)
        dealer.connect(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        replay = Replay(router, b"", 10_000)
        for number in range(10_000):
            replay.keep(number.to_bytes(8, "big"), b"payload")
        dealer.send_multipart([b"", bytes(8)])
        dealer.send_multipart([b"", bytes(8)])
        assert router.poll(20_000)
        replay.serve()
        replay.serve()  # at once, with the second request there: it is not its turn
        for _ in range(10_001):
            dealer.recv_multipart()
        assert not dealer.poll(20), "the second answer has not waited"
        wait_for(lambda: [replay.serve(), dealer.poll(0)][1], "the second answer never came")
    finally:
        context.destroy(linger=0)


def test_a_full_queue_drops_steps_and_their_numbers_are_missing(publish: Publish) -> None:
    publisher = publish(started=False, max_queue_size=3)
    say(publisher, *range(5))
    assert publisher.num_dropped == 2
    publisher.start()
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: len(subscriber.replayed(0)) == 3)
        say(publisher, 5)
        wait_for(lambda: [n for _, n, _ in subscriber.replayed(0)] == [0, 1, 2, 5])


def test_a_slow_subscriber_loses_messages_and_sees_the_gap(publish: Publish) -> None:
    publisher = publish(hwm=1)
    with Subscriber(publisher.address, high_water=1) as slow:
        with Subscriber(publisher.address) as quick:
            joined(publisher, slow)
            joined(publisher, quick)
            large = [bytes([i % 256]) * 16 for i in range(50_000)]  # 450 kB a message
            for _ in range(60):
                publisher.removed(large)
                publisher.end_step()
                quick.hear()
        numbers = []
        while not slow.is_silent():
            numbers.append(slow.hear()[1])
        say(publisher, 1)
        numbers.append(slow.hear()[1])
    steps = [after - before for before, after in pairwise(numbers)]
    assert max(steps) > 1, "nothing was lost: the test says nothing"
    assert min(steps) > 0


def test_it_connects_where_a_router_listens(publish: Publish) -> None:
    with Subscriber("tcp://127.0.0.1:0", bind=True) as router:
        publisher = publish(endpoint=router.address, bind=None, replay_endpoint=None)
        assert publisher.replay_address is None
        joined(publisher, router)


def test_what_is_queued_at_the_end_is_still_sent(publish: Publish) -> None:
    publisher = publish()
    with Subscriber(publisher.address) as subscriber:
        last = joined(publisher, subscriber)
        say(publisher, 1, 2, 3)
        publisher.stop()
        assert [subscriber.hear()[1] for _ in range(3)] == [last + 1, last + 2, last + 3]


def test_an_end_leaves_neither_thread_nor_socket(publish: Publish) -> None:
    before = set(threading.enumerate())
    publisher = publish()
    [thread] = set(threading.enumerate()) - before
    assert (thread.name, thread.daemon) == ("kvscope-kv-publisher", True)
    publisher.stop()
    assert not thread.is_alive()
    again = publish(endpoint=publisher.address, replay_endpoint=publisher.replay_address)
    assert again.address == publisher.address


def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open(publish: Publish) -> None:
    taken = publish()
    assert taken.replay_address is not None
    free = zmq.Context()
    try:
        probe = free.socket(zmq.PUB)
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    finally:
        free.destroy(linger=0)
    for _ in range(2):  # the first failure has not kept the stream's port
        with pytest.raises(EndpointError, match="cannot be bound: Address already in use"):
            publish(endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=taken.replay_address)
    publish(endpoint=f"tcp://127.0.0.1:{port}")


def test_a_message_that_cannot_be_encoded_leaves_a_gap_and_the_next_is_sent(
    publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = publish()
    publisher.stored([NAME], None, [object()], 1, "")  # type: ignore[list-item]
    publisher.end_step()
    say(publisher, 1)
    with Subscriber(publisher.address, publisher.replay_address) as subscriber:
        wait_for(lambda: [n for _, n, _ in subscriber.replayed(0)] == [1])
    assert "KV events: a message failed" in caplog.text


def test_the_socket_of_an_ipc_endpoint_is_in_a_folder_of_ours_and_goes_with_it(
    publish: Publish, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("kv")
    folder.chmod(0o700)
    publisher = publish(endpoint=f"ipc://{folder}/events", bind=None, replay_endpoint=None)
    assert (folder / "events").is_socket()
    with Subscriber(publisher.address) as subscriber:
        joined(publisher, subscriber)
    publisher.stop()
    assert not (folder / "events").exists()
    folder.chmod(0o777)
    with pytest.raises(EndpointError, match="others may write to it"):
        publish(endpoint=f"ipc://{folder}/events", bind=None)


def test_a_payload_is_what_the_structs_of_vllm_are_on_the_wire() -> None:
    """The keys of a message of vLLM 0.32 without a session, in a capture."""
    from engine.kv_events.messages import MessageEncoder, Removed, Stored

    payload = MessageEncoder(int_hashes=True).encode(
        1.5, [Stored([NAME], None, [1], 1, ""), Removed([NAME])]
    )
    stored, removed = msgspec.msgpack.decode(payload)[1]
    assert list(stored) == [
        *("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"),
        *("medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"),
    ]
    assert list(removed) == ["type", "block_hashes", "medium", "group_idx"]
