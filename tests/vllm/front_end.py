"""Requests to a vLLM's API server, answered in all ways, and what its observer reports of them."""

import http.client
import json
import time
from collections import Counter
from collections.abc import Sequence

from kvscope_events.events import AnswerSent
from kvscope_events.wire.subscriber import WireSubscriber
from tests.support.waiting import wait_for


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
