"""A load of all that OpenAI's server offers at once: samples, salts, adapters, clients that leave.

Returns only when every request has been answered or abandoned.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.vllm.observed import Observed

SALTS = (None, "tenant-a", "tenant-b")


def mixed_load(
    vllm: Observed,
    *,
    models: Sequence[str] = ("tiny",),
    leaving: int = 0,
    requests: int = 36,
    longest: int = 90,
) -> None:
    """Requests in which models, salts and numbers of samples are mixed; of `leaving` more the
    clients leave."""

    def one(number: int) -> None:
        salt = SALTS[number % len(SALTS)]
        body: dict[str, Any] = {"model": models[number % len(models)]}
        if salt is not None:
            body["cache_salt"] = salt
        prompt = f"{'one two three one two three ' * (6 + number % 5)}{number % 7}"
        n = 4 if number % 6 == 0 else 1
        body |= {"temperature": 0.7} if n > 1 else {}
        vllm.server.complete(prompt, longest - longest // 9 * (number % 6), n=n, **body)

    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(one, number) for number in range(requests)]
        gone = [pool.submit(_leave, vllm, number, models) for number in range(leaving)]
        for done in (*answers, *gone):
            done.result(timeout=240)


def _leave(vllm: Observed, number: int, models: Sequence[str]) -> None:
    """Ask for more than it will wait for: some leave while they wait, some when served."""
    body = {
        "model": models[number % len(models)],
        "prompt": f"{number} {'to be left ' * 20}",
        "max_tokens": 400,
        "n": 2 if number % 4 == 3 else 1,
        "stream": True,
        "ignore_eos": True,
        "temperature": 0.7 if number % 4 == 3 else 0,
    }
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", f"{vllm.server.url}/v1/completions", json=body) as answer,
    ):
        for seen, _ in enumerate(answer.iter_lines()):
            if seen >= number * 2:
                return
