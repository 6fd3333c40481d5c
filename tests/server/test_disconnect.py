"""A client that goes away frees its blocks within a step; the others lose no token."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from kvscope_engine.config import CacheConfig
from tests.support.server import Server, greedy, make_engine_config, serving
from tests.support.waiting import wait_for

PATH = "/v1/completions"


@contextmanager
def connection(server: Server, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A bare socket that has sent a request; closing it is the client's going away."""
    address = urlsplit(server.url)
    content = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=10) as sock:
        sock.sendall(head.encode() + content)
        yield sock


def in_flight(server: Server) -> int:
    return server.engine.loop.num_in_flight


def run_together(server: Server, prompts: list[list[int]], salt: str) -> list[list[int]]:
    answer = server.complete(prompts, max_tokens=60, cache_salt=salt)
    return [choice["token_ids"] for choice in answer["choices"]]


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_before_the_first_token(server: Server, stream: bool) -> None:
    with server.reins.held():
        with connection(server, greedy("abc", stream=stream, max_tokens=500)):
            wait_for(lambda: in_flight(server) == 1, "the request arrives")
        time.sleep(0.1)  # the server notices the end while no step ends
    wait_for(lambda: in_flight(server) == 0, "the request ends")
    assert server.pool.num_active == 0


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_midway_frees_the_blocks(server: Server, stream: bool) -> None:
    before = server.metric("kvscope_requests_finished_total", reason="abort")
    with connection(server, greedy([1] * 40, stream=stream, max_tokens=470)):
        wait_for(lambda: server.pool.num_active > 3, "the reply grows")
    wait_for(lambda: in_flight(server) == 0, "the request ends")
    server.wait_until_free()
    assert server.metric("kvscope_requests_finished_total", reason="abort") == before + 1


def test_blocks_are_free_within_one_step(server: Server) -> None:
    with connection(server, greedy([1] * 40, stream=True, max_tokens=470)) as sock:
        sock.recv(1000)
        with server.reins.held():
            sock.close()
            time.sleep(0.2)  # noticed, while at most one step is under way
            steps = server.metric("kvscope_step_duration_seconds_count")
        wait_for(lambda: server.pool.num_active == 0, "blocks free")
    server.wait_until_free()
    assert server.metric("kvscope_step_duration_seconds_count") <= steps + 1


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_the_waiting_queue(stream: bool) -> None:
    with serving(make_engine_config(max_num_seqs=1)) as server:
        prompts = [[1, 2, 3]]
        quiet = run_together(server, prompts, "quiet")
        loop: Any = server.engine.loop
        results: list[list[list[int]]] = []
        with connection(server, greedy("first", stream=True, max_tokens=200)) as first:
            first.recv(1000)
            with connection(server, greedy("second", stream=stream, max_tokens=200)):
                wait_for(lambda: loop._scheduler.num_waiting == 1, "the second waits")
                third = threading.Thread(
                    target=lambda: results.append(run_together(server, prompts, "busy"))
                )
                third.start()
                wait_for(lambda: loop._scheduler.num_waiting == 2, "the third waits")
            wait_for(lambda: loop._scheduler.num_waiting == 1, "the second has left the queue")
        third.join(20)
        assert results == [quiet]
        server.wait_until_free()
        gone = server.metric("kvscope_request_abandoned_seconds_count")
        assert gone == 1, "the first one left with tokens"


def test_a_client_that_stops_reading_stops_nobody(server: Server) -> None:
    prompts = [[5] * 20, [6] * 20]
    quiet = run_together(server, prompts, "quiet")
    with connection(server, greedy("stalled", stream=True, max_tokens=450)):
        assert run_together(server, prompts, "stalled") == quiet
        wait_for(lambda: in_flight(server) == 0, "the unread reply is computed all the same")


@pytest.mark.nightly
@pytest.mark.slow
def test_churn_leaves_nothing_behind_and_costs_nobody_a_token() -> None:
    """20 clients that leave at random, in a pool that preempts; one of them reads all."""
    pool = CacheConfig(num_gpu_blocks_override=48)
    with serving(make_engine_config(max_num_seqs=12, cache=pool)) as server:
        prompts = [[i, *range(40)] for i in range(3)]
        quiet = run_together(server, prompts, "quiet")
        over = threading.Event()

        def come_and_go(seed: int) -> None:
            rng = random.Random(seed)
            while not over.is_set():
                prompt = [rng.randrange(100)] * rng.randrange(1, 300)
                body = greedy(prompt, max_tokens=rng.randrange(1, 200), n=rng.randrange(1, 3))
                with connection(server, body | {"stream": rng.random() < 0.6}) as sock:
                    sock.settimeout(rng.choice([0.001, 0.02, 0.1, 0.5]))
                    try:
                        while sock.recv(4000):
                            if rng.random() < 0.1:
                                break
                    except TimeoutError:
                        pass

        clients = [threading.Thread(target=come_and_go, args=(i,)) for i in range(20)]
        for client in clients:
            client.start()
        try:
            ends = time.monotonic() + 5
            rounds = 0
            while time.monotonic() < ends or not rounds:
                assert run_together(server, prompts, f"round {rounds}") == quiet
                rounds += 1
        finally:
            over.set()
            for client in clients:
                client.join(20)
        wait_for(lambda: in_flight(server) == 0, "all requests end")
        server.wait_until_free()
        mailboxes: Any = server.engine.dispatcher
        assert not mailboxes._mailboxes
        assert server.metric("kvscope_requests_finished_total", reason="abort") > 10
        assert server.metric("kvscope_preemptions_total") > 0
