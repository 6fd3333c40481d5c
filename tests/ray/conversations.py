"""Conversations over OpenAI's API, several at once, and how much of their prompts was found."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from tests.ray.cluster import API

CONVERSATIONS = 12
TURNS = 6
AT_ONCE = 3
BEGINNING_TOKENS = 320
TURN_TOKENS = 64


@dataclass(frozen=True)
class Answered:
    """Sums over all answers."""

    prompt_tokens: int
    cached_tokens: int

    @property
    def share(self) -> float:
        return self.cached_tokens / self.prompt_tokens


def complete(prompt: list[int] | str, **body: Any) -> httpx.Response:
    """One completion, whatever comes of it."""
    return httpx.post(
        f"{API}/v1/completions", json={"prompt": prompt, "max_tokens": 4, **body}, timeout=120
    )


def converse(**body: Any) -> Answered:
    """Each turn sends all that was said before. The same prompts each time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        talks = threads.map(partial(_talk, body), range(CONVERSATIONS))
        usages = [usage for turns in talks for usage in turns]
    return Answered(
        prompt_tokens=sum(usage["prompt_tokens"] for usage in usages),
        cached_tokens=sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
    )


def _talk(body: dict[str, Any], number: int) -> list[dict[str, Any]]:
    draw = random.Random(number)
    said = [draw.randrange(256) for _ in range(BEGINNING_TOKENS)]
    usages = []
    for _ in range(TURNS):
        answer = complete(said, **body)
        assert answer.status_code == 200, answer.text
        usages.append(answer.json()["usage"])
        said += [draw.randrange(256) for _ in range(TURN_TOKENS)]
    return usages
