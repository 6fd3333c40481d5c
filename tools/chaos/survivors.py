"""Clients whose answers are compared, token by token, with those of an undisturbed server."""

import http.client
import itertools
import json
import threading

from tools.chaos.server import ChaosServer

NUM_CLIENTS = 2
NUM_TOKENS = 24
ANSWER_SECONDS = 60.0
MAX_FINDINGS = 100
"""Differences and failures that are kept."""
_PROMPTS = tuple(
    [(start * 37 + step * (start + 3)) % 256 for step in range(length)]
    for start, length in enumerate((1, 15, 16, 17, 33, 64, 100, 200))
)


class Survivors:
    """Threads that ask the same greedy completions in turn, from construction until `stop`.

    Construct it while nothing disturbs the server: it learns the right tokens first.
    """

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._right = [_tokens(server, prompt) for prompt in _PROMPTS]
        self.num_compared = 0
        self.differing: list[str] = []
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._compare_all_along, args=(number,), daemon=True)
            for number in range(NUM_CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)

    def _compare_all_along(self, number: int) -> None:
        for index in itertools.count(number):
            if self._ended.wait(0.1):
                return
            which = index % len(_PROMPTS)
            try:
                tokens = _tokens(self._server, _PROMPTS[which])
            except (OSError, http.client.HTTPException, RuntimeError) as error:
                with self._lock:
                    if len(self.failures) < MAX_FINDINGS:
                        self.failures.append(f"prompt {which}: {error!r}")
                continue
            with self._lock:
                self.num_compared += 1
                if tokens != self._right[which] and len(self.differing) < MAX_FINDINGS:
                    self.differing.append(f"prompt {which}: {tokens}, not {self._right[which]}")


def _tokens(server: ChaosServer, prompt: list[int]) -> list[int]:
    """Raises OSError, HTTPException or, for another status than 200, RuntimeError."""
    body = {
        **{"prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0},
        **{"ignore_eos": True, "return_token_ids": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.api_port, timeout=ANSWER_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"HTTP {answer.status}: {content[:100]!r}")
    tokens: list[int] = json.loads(content)["choices"][0]["token_ids"]
    return tokens
