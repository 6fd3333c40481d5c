"""The loads of tests.support.prefix_trees over HTTP: a vLLM's server answers the clients."""

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack

import httpx

from tests.support.prefix_trees import Load, drive

_ANSWER_SECONDS = 120.0


class OverHttp:
    """A `Server` of tests.support.prefix_trees; its requests are completions of token ids."""

    def __init__(self, url: str, clients: int) -> None:
        self._stack = ExitStack()
        limits = httpx.Limits(max_connections=clients)
        self._client = self._stack.enter_context(
            httpx.Client(base_url=url, timeout=_ANSWER_SECONDS, limits=limits)
        )
        self._threads = self._stack.enter_context(ThreadPoolExecutor(clients))
        self._asked: dict[Future[list[int]], int] = {}

    def close(self) -> None:
        self._stack.close()

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None:
        self._asked[self._threads.submit(self._complete, list(prompt), output_tokens)] = request

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        ended, _ = wait(self._asked, return_when=FIRST_COMPLETED)
        for future in ended:
            yield self._asked.pop(future), future.result()

    def _complete(self, prompt: list[int], output_tokens: int) -> list[int]:
        answer = self._client.post(
            "/v1/completions",
            json={
                "model": "tiny",
                "prompt": prompt,
                "max_tokens": output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            },
        )
        assert answer.status_code == 200, answer.text
        tokens: list[int] = answer.json()["choices"][0]["token_ids"]
        return tokens


def serve_over_http(url: str, load: Load) -> None:
    """All requests of the load, each client's next at once after its last."""
    server = OverHttp(url, load.clients)
    try:
        drive(server, load)
    finally:
        server.close()
