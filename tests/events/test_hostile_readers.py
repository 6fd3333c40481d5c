"""Readers that take nothing cost the publisher neither memory nor the readers that do."""

import contextlib
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvscope_events.wire import publisher as publishing
from kvscope_events.wire import readers
from kvscope_events.wire.frame import RequestKind, pack_request
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.peers import connection, is_sent_away, published
from tests.events.producers import collect
from tests.events.test_engine_untouched import resident_bytes
from tests.support.waiting import wait_for


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


def test_readers_over_the_most_are_sent_away_until_others_leave(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_READERS", 2)
    with published(endpoint) as (made, _), ExitStack() as stack:
        first, _, third = (stack.enter_context(connection(endpoint)) for _ in range(3))
        assert is_sent_away(third)
        first.close()
        watch = WireSubscriber(endpoint)
        stack.callback(watch.close)
        made.step()
        collect(watch, lambda taken: len(taken) == 2)


@pytest.mark.alone
def test_a_reader_that_takes_nothing_costs_no_memory_and_is_sent_away(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "STALLED_SECONDS", 1.0)
    with published(endpoint) as (made, _), ExitStack() as stack:
        idle = [stack.enter_context(connection(endpoint)) for _ in range(20)]
        watch = WireSubscriber(endpoint)
        stack.callback(watch.close)
        collect(watch, lambda taken: len(taken) == 1)  # it came last: all are accepted
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(200):
            made.step(padding=100_000)
            time.sleep(0.002)
        seen = collect(watch, lambda taken: taken[-1:] != [] and taken[-1].batch.seq == 200)
        assert len(seen) == 200, "a reader that reads has all of it"
        time.sleep(3)  # they are looked at: who reads now is not stalled
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown_mib < 32 + 16 + 40, "the ring, what the reader queues, and batches on the way"
        assert all(map(is_sent_away, idle))


@pytest.mark.alone
def test_replays_that_nobody_takes_are_bounded_for_all_readers_together(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "ANSWERS_PER_TICK", 64)
    with published(endpoint) as (made, publisher), ExitStack() as stack:
        for _ in range(60):  # each leaves alone, so that an answer is made of several
            made.step(padding=10_000)
            time.sleep(0.03)
        wait_for(lambda: publisher.ring_bytes > 600_000)
        peers = [stack.enter_context(connection(endpoint)) for _ in range(40)]
        before = resident_bytes()
        request = pack_request(RequestKind.REPLAY, publisher.session, 0)
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.send(request, socket.MSG_DONTWAIT)
            time.sleep(0.02)
        grown_mib = (resident_bytes() - before) / 2**20
        assert grown_mib < 64 + 10 + 20, "the queues, one more answer each, and the allocator"
