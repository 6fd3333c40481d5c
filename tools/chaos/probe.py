"""The unrelated client: asks /health and one-token completions at a steady rate, all along.

A time counts from the moment at which the request was due. So a server that stands still for four
seconds shows as all the requests that were due in them, not as a single slow one.
"""

import http.client
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from tools.chaos.server import ChaosServer

Question = Literal["health", "completion", "metrics"]
QUESTIONS: tuple[Question, ...] = get_args(Question)

_INTERVAL_SECONDS: dict[Question, float] = {"health": 0.05, "completion": 0.05, "metrics": 0.5}
ANSWER_SECONDS = 60.0
"""A request that takes longer has failed."""
MAX_FAILURES = 1000
"""Failures that are kept of one question."""
_COMPLETION = json.dumps({"prompt": [72, 105], "max_tokens": 1, "temperature": 0}).encode()


@dataclass(slots=True)
class Times:
    """A client's view of a phase: seconds of each request that was due, and failures."""

    seconds: dict[Question, list[float]] = field(
        default_factory=lambda: {question: [] for question in QUESTIONS}
    )
    failures: list[str] = field(default_factory=list)

    def p99(self, question: Question) -> float:
        return percentile(self.seconds[question], 0.99)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed; NaN without any."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Probe:
    """Threads that ask from construction until `stop`."""

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._times = Times()
        self._num_asked = dict.fromkeys(QUESTIONS, 0)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_all_along, args=(question,), daemon=True)
            for question in QUESTIONS
        ]
        for thread in self._threads:
            thread.start()

    def take(self) -> Times:
        """Results since the last call, once every request in progress has ended."""
        before = dict(self._num_asked)
        while any(self._num_asked[question] == before[question] for question in QUESTIONS):
            time.sleep(0.01)
        with self._lock:
            taken, self._times = self._times, Times()
        return taken

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)

    def _ask_all_along(self, question: Question) -> None:
        port = self._server.metrics_port if question == "metrics" else self._server.api_port
        interval = _INTERVAL_SECONDS[question]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            failure = _ask(connection, question)
            answered = time.monotonic()
            overdue = []
            while due <= answered:  # also those that could not be sent meanwhile
                overdue.append(answered - due)
                due += interval
            with self._lock:
                self._num_asked[question] += 1
                self._times.seconds[question] += overdue
                if failure and len(self._times.failures) < MAX_FAILURES:
                    self._times.failures.append(f"{question}: {failure}")
        connection.close()


def _ask(connection: http.client.HTTPConnection, question: Question) -> str:
    """The reason of a failure; empty: it was answered. Only completions keep their connection.

    A server may close one between two requests; then a client tries again on a new one, once.
    """
    is_kept = connection.sock is not None
    try:
        return _answered(connection, question)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return _ask(connection, question) if is_kept else repr(error)


def _answered(connection: http.client.HTTPConnection, question: Question) -> str:
    """The same. Raises OSError or HTTPException without an answer."""
    if question == "completion":
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", _COMPLETION, headers)
    else:
        connection.request("GET", f"/{question}")
    answer = connection.getresponse()
    answer.read()
    if question != "completion":
        connection.close()
    return "" if answer.status == 200 else f"HTTP {answer.status}"
