"""A full queue, an engine that fails or hangs, a shutdown in progress: which error each client
gets."""

import concurrent.futures
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.server import Server, greedy, make_engine_config, serving
from tests.support.sse import chunks, joined
from tests.support.waiting import wait_for

PATH = "/v1/completions"


@contextmanager
def in_background(server: Server, *bodies: dict[str, Any]) -> Iterator[list[Any]]:
    """Requests under way; the futures of their responses."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        futures = [pool.submit(server.post, PATH, body) for body in bodies]
        yield futures


def test_a_full_queue_is_429_with_retry_after() -> None:
    config = make_engine_config(max_num_seqs=1, max_num_queued_reqs=2)
    with serving(config) as server:
        quiet = server.complete("kept", max_tokens=50)["choices"][0]["token_ids"]
        body = greedy("kept", max_tokens=50)
        with server.reins.held(), in_background(server, body) as running:
            wait_for(lambda: server.reins.num_running == 1, "one runs")
            with in_background(server, body, body) as queued:
                wait_for(lambda: server.engine.loop.num_in_flight == 3, "two wait")
                refused = server.post(PATH, body)
                assert refused.status_code == 429
                assert int(refused.headers["retry-after"]) >= 1
                error = refused.json()["error"]
                assert (error["type"], error["code"]) == ("rate_limit_exceeded", 429)
                streamed = server.post(PATH, body | {"stream": True})
                assert streamed.status_code == 429
                server.reins.let_go()
                for future in (*running, *queued):
                    assert future.result().json()["choices"][0]["token_ids"] == quiet
        server.wait_until_free()
        assert server.metric("kvscope_requests_rejected_total", reason="queue_full") == 2


def test_a_call_of_several_choices_waits_and_is_refused_as_one() -> None:
    with serving(make_engine_config(max_num_seqs=1, max_num_queued_reqs=1)) as server:
        body = greedy("abc", n=8)
        with server.reins.held(), in_background(server, body) as running:
            wait_for(lambda: server.reins.num_running == 1, "the first call runs")
            with in_background(server, body) as queued:
                wait_for(lambda: server.engine.loop.num_in_flight == 2, "the second waits")
                assert server.post(PATH, body).status_code == 429
                assert server.engine.loop.num_in_flight == 2
                server.reins.let_go()
                for future in (*running, *queued):
                    assert len(future.result().json()["choices"]) == 8
        server.wait_until_free()
        assert server.metric("kvscope_requests_finished_total", reason="length") == 2
        assert server.metric("kvscope_requests_rejected_total", reason="queue_full") == 1


def test_a_failed_step_ends_every_request_with_an_error(own_server: Server) -> None:
    server = own_server
    whole = greedy("abc", max_tokens=400)
    parts = whole | {"stream": True}
    bodies = [whole, whole | {"n": 3}, parts, parts | {"n": 2}]
    with in_background(server, *bodies) as futures:
        wait_for(lambda: server.reins.num_running == 7, "all run")
        server.reins.failure = RuntimeError("out of luck")
        answers = [future.result() for future in futures]
    assert [answer.status_code for answer in answers] == [500, 500, 200, 200]
    for answer in answers[:2]:
        assert answer.json()["error"]["type"] == "internal_error"
    for answer in answers[2:]:
        *_, last = chunks(answer.text.splitlines())
        assert last["error"]["code"] == 500
    health = server.client.get("/health")
    assert health.status_code == 503
    assert "out of luck" in health.json()["reason"]
    for body in (whole, parts):
        refused = server.post(PATH, body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, 503)
    assert server.post("/reset_prefix_cache", {}).status_code == 503
    page = server.client.get("/metrics")
    assert page.status_code == 200
    assert server.metric("kvscope_requests_finished_total", reason="error") == len(bodies)
    assert server.metric("kvscope_requests_rejected_total", reason="engine_dead") == 2
    server.check_accounts()


def test_metrics_and_health_answer_while_a_step_hangs() -> None:
    with (
        serving(make_engine_config(stall_seconds=1.5)) as server,
        server.reins.held(),
        in_background(server, greedy("abc")),
    ):
        wait_for(lambda: server.engine.loop.num_in_flight == 1, "a request hangs")
        assert server.client.get("/health").status_code == 200
        assert "kvscope_kv_blocks" in server.client.get("/metrics").text
        wait_for(lambda: server.client.get("/health").status_code == 503, "the stall shows")
        assert "no step for" in server.client.get("/health").json()["reason"]
        server.reins.let_go()
        wait_for(lambda: server.client.get("/health").status_code == 200, "it is over")


def test_idle_time_is_no_stall() -> None:
    with serving(make_engine_config(stall_seconds=1.5)) as server:
        time.sleep(1.6)
        with server.reins.held(), in_background(server, greedy("abc")):
            wait_for(lambda: server.engine.loop.num_in_flight == 1, "a request arrives")
            assert server.client.get("/health").status_code == 200
            server.reins.let_go()


def test_a_drain_finishes_what_runs_and_refuses_what_comes(own_server: Server) -> None:
    server = own_server
    quiet = server.complete("abc", max_tokens=300)["choices"][0]["token_ids"]
    body = greedy("abc", max_tokens=300, stream=True)
    with server.client.stream("POST", PATH, json=body) as response:
        lines = response.iter_lines()
        first = next(lines)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            drained = pool.submit(server.engine.loop.shutdown, 20.0)
            late = greedy("late", max_tokens=1)
            wait_for(lambda: server.post(PATH, late).status_code == 503, "the drain begins")
            assert joined(chunks([first, *lines]))[0]["token_ids"] == quiet
            drained.result(20)


def test_a_drain_that_takes_too_long_ends_requests_with_abort(own_server: Server) -> None:
    with (
        own_server.reins.held(),
        in_background(own_server, greedy("a"), greedy("b", stream=True)) as futures,
    ):
        wait_for(lambda: own_server.engine.loop.num_in_flight == 2, "two run")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            drained = pool.submit(own_server.engine.loop.shutdown, 0.1)
            time.sleep(0.3)
            own_server.reins.let_go()
            drained.result(20)
        whole, parts = (future.result() for future in futures)
    assert whole.json()["choices"][0]["finish_reason"] == "abort"
    assert joined(chunks(parts.text.splitlines()))[0]["finish_reason"] == "abort"


@pytest.mark.slow
def test_pages_under_load_are_strict_openmetrics_and_small(server: Server) -> None:
    bodies = [greedy([i] * 100, max_tokens=100, user=f"tenant {i}") for i in range(8)]
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    pages = []
    with in_background(server, *bodies) as futures:
        while not all(future.done() for future in futures):
            page = server.client.get("/metrics", headers=accept)
            assert page.headers["content-type"].startswith("application/openmetrics-text")
            pages.append(page.text)
    assert len(pages) > 2
    parse: Any = text_string_to_metric_families
    for text in (pages[len(pages) // 2], pages[-1]):
        samples = [sample for family in parse(text) for sample in family.samples]
        assert 100 < len(samples) < 650


def test_long_texts_are_encoded_aside(server: Server) -> None:
    """Streams go on: their tokens come while a text of a megabyte is encoded and refused."""
    body = greedy("abc", max_tokens=300)
    with in_background(server, body) as futures:
        refused = server.post(PATH, {"prompt": "long " * 50_000})
        assert refused.status_code == 400
        assert "250000 tokens" in refused.json()["error"]["message"]
        assert len(futures[0].result().json()["choices"][0]["token_ids"]) == 300
