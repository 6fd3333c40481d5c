"""Clients that have nothing to do with an attack, and what they notice of it; the server's figures.

A time counts from the moment at which a request was due. So a server that stands still for four
seconds shows as all the requests that were due in them, not as a single slow one.
"""

import http.client
import itertools
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from tools.chaos.frame import JOIN_SECONDS, AllAlong, Figures
from tools.chaos.server import ChaosServer

Question = Literal["health", "completion", "metrics"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
_INTERVAL_SECONDS: dict[Question, float] = {"health": 0.05, "completion": 0.05, "metrics": 0.5}
_SAMPLE_SECONDS = 0.1
MAX_FINDINGS = 1000
"""Failures and differences that are kept."""
_JSON = {"Content-Type": "application/json"}
_COMPLETION = json.dumps({"prompt": [72, 105], "max_tokens": 1, "temperature": 0}).encode()
_SAME = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
_PROMPTS = tuple(
    [(start * 37 + step * (start + 3)) % 256 for step in range(length)]
    for start, length in enumerate((1, 15, 16, 17, 33, 64, 100, 200))
)


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


class Probe(AllAlong):
    """Asks at a steady rate, all along. A request that takes a minute has failed."""

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._times = Times()
        self._num_asked = dict.fromkeys(QUESTIONS, 0)
        super().__init__(*(partial(self._ask_all_along, question) for question in QUESTIONS))

    def take(self) -> Times:
        """Results since the last call, once every request in progress has ended."""
        before = dict(self._num_asked)
        while any(self._num_asked[question] == before[question] for question in QUESTIONS):
            time.sleep(0.01)
        with self.lock:
            taken, self._times = self._times, Times()
        return taken

    def _ask_all_along(self, question: Question) -> None:
        port = self._server.metrics_port if question == "metrics" else self._server.api_port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=JOIN_SECONDS)
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            failure = _ask(connection, question)
            answered = time.monotonic()
            overdue = []
            while due <= answered:  # also those that could not be sent meanwhile
                overdue.append(answered - due)
                due += _INTERVAL_SECONDS[question]
            with self.lock:
                self._num_asked[question] += 1
                self._times.seconds[question] += overdue
                if failure and len(self._times.failures) < MAX_FINDINGS:
                    self._times.failures.append(f"{question}: {failure}")
        connection.close()


def _ask(connection: http.client.HTTPConnection, question: Question) -> str:
    """The reason of a failure; empty: it was answered. Only completions keep their connection.

    A server may close one between two requests; then a client tries again on a new one, once.
    """
    is_kept = connection.sock is not None
    try:
        if question == "completion":
            connection.request("POST", "/v1/completions", _COMPLETION, _JSON)
        else:
            connection.request("GET", f"/{question}")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return _ask(connection, question) if is_kept else repr(error)
    if question != "completion":
        connection.close()
    return "" if answer.status == 200 else f"HTTP {answer.status}"


class Survivors(AllAlong):
    """Two ask the same greedy completions in turn, and compare them token by token.

    Construct it while nothing disturbs the server: it learns the right tokens first.
    """

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._right = [self._tokens(prompt) for prompt in _PROMPTS]
        self.num_compared = 0
        self.differing: list[str] = []
        self.failures: list[str] = []
        super().__init__(*(partial(self._compare_all_along, number) for number in range(2)))

    def _compare_all_along(self, number: int) -> None:
        for which in itertools.islice(itertools.cycle(range(len(_PROMPTS))), number, None):
            if self.ended.wait(0.1):
                return
            try:
                tokens = self._tokens(_PROMPTS[which])
            except (OSError, http.client.HTTPException, RuntimeError) as error:
                self.failures.append(f"prompt {which}: {error!r}")
                continue
            with self.lock:
                self.num_compared += 1
            if tokens != self._right[which]:
                self.differing.append(f"prompt {which}: {tokens}, not {self._right[which]}")

    def _tokens(self, prompt: list[int]) -> list[int]:
        """Raises OSError, HTTPException or, for another status than 200, RuntimeError."""
        body = json.dumps({"prompt": prompt} | _SAME).encode()
        status, content = self._server.ask("POST", "/v1/completions", body)
        if status != 200:
            raise RuntimeError(f"HTTP {status}: {content[:100]!r}")
        tokens: list[int] = json.loads(content)["choices"][0]["token_ids"]
        return tokens


class Watch(AllAlong):
    """Samples the server's figures, until it has ended."""

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._peak = server.figures()
        super().__init__(self._sample_all_along)

    def take(self) -> Figures:
        """The largest figures since the last call."""
        with self.lock:
            taken, self._peak = self._peak, self._server.figures()
        return taken

    def _sample_all_along(self) -> None:
        while not self.ended.wait(_SAMPLE_SECONDS):
            try:
                seen = self._server.figures()
            except OSError:  # it has ended, which the probe reports
                return
            with self.lock:
                self._peak = self._peak.at_most(seen)
