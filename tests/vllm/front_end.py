"""Requests to a vLLM's API server, answered in all ways, and what its observer reports of them."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from kvscope_events.events import AnswerSent
from kvscope_events.tenants import tenant_digest
from kvscope_events.wire.subscriber import WireSubscriber
from tests.support.pages import sample
from tests.support.waiting import wait_for
from tests.vllm.observed import Observed


def ask_in_all_ways(
    client: http.client.HTTPConnection, prompts: Sequence[str]
) -> tuple[Counter[tuple[str, int]], list[float]]:
    """Routes and statuses of 60 answers, and the seconds to each first token."""
    statuses: Counter[tuple[str, int]] = Counter()
    firsts: list[float] = []
    for number in range(60):
        model = "tiny" if number % 3 else ("other", "tiny")[number % 2]
        body = {"model": model, "prompt": prompts[number % 8], "max_tokens": 6, "stream": True}
        if model == "tiny" and not number % 3:
            body["max_tokens"] = -1
        path = "/v1/completions" if number % 5 else "/tokenize"
        sent = time.monotonic()
        client.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = client.getresponse()
        answer.read1()
        first = time.monotonic() - sent
        answer.read()
        statuses["generation" if number % 5 else "other", answer.status] += 1
        if answer.status == 200 and number % 5:
            firsts.append(first)
    return statuses, firsts


def answers_sent(reader: WireSubscriber, since_ns: int, count: int) -> list[AnswerSent]:
    """All answers of requests that began since then, once there are `count`."""
    found: list[AnswerSent] = []

    def enough() -> bool:
        while (taken := reader.take()) is not None:
            batch = taken.batch
            found.extend(
                event
                for event in batch.events
                if isinstance(event, AnswerSent) and batch.time_ns - event.duration_ns >= since_ns
            )
        return len(found) >= count

    wait_for(enough, f"{count} answers")
    return found


def assert_counted(before: str, after: str, statuses: Counter[tuple[str, int]]) -> None:
    """Both pages of the sidecar, and all answers between them."""
    for kind, status in (("2xx", (200,)), ("4xx", (400, 404))):
        labels = {"route": "generation", "status": kind}
        name = "kvscope_front_end_answers_total"
        grown = (sample(after, name, **labels) or 0) - (sample(before, name, **labels) or 0)
        assert grown == sum(statuses["generation", one] for one in status)


def assert_parts_add_up(answers: Sequence[AnswerSent]) -> None:
    """Those of streamed answers."""
    for one in answers:
        if one.first_ns is not None:
            parts = one.tokenizer_queue_ns, one.tokenizer_ns, one.before_ns, one.after_ns
            known = [part for part in parts if part is not None]
            assert len(known) == len(parts), one
            assert 0 < known[0] + known[1] < known[2], one


def see_a_request_pass(vllm: Observed, prompts: Sequence[str]) -> None:
    """Through the engine, as the page of the sidecar has it; several prompts are one request."""

    def at(place: str) -> float | None:
        return vllm.value("kvscope_front_end_requests", place=place)

    seen = threading.Event()

    def ask_until_seen() -> None:
        while not seen.is_set():
            vllm.server.complete(list(prompts), 900)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask_until_seen)
        try:
            wait_for(lambda: asking.done() or at("in_engine") == 1, "a request is in the engine")
        finally:
            seen.set()
        asking.result()
    wait_for(lambda: at("in_engine") == at("before_engine") == at("after_engine") == 0)
    assert vllm.value("kvscope_front_end_tokenizer_waiting") == 0


def assert_header_names_tenant(vllm: Observed, prompt: str) -> None:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "ignore_eos": True}
    url = f"{vllm.server.url}/v1/completions"
    assert httpx.post(url, json=body, headers={"X-User": "ann"}, timeout=60).status_code == 200
    assert_tenants(vllm, {"ann": 1})


def assert_tenants(vllm: Observed, finished: Mapping[str, int]) -> None:
    """Names with their finished requests; each is shown as its hash."""

    def are_shown() -> bool:
        page = httpx.get(f"{vllm.url}/api/tenants", timeout=30).text
        assert not any(f'"{name}"' in page for name in finished)
        (engine,) = json.loads(page)["engines"]
        shown = {each["tenant"]: each["finished"] for each in engine["answer"]["tenants"]}
        return all(shown.get(_digits(name)) == count for name, count in finished.items())

    wait_for(are_shown, "the tenants are among those of the engine")


def _digits(name: str) -> str:
    return tenant_digest(name)[:8]
