"""A vLLM driven into one shortage after the other: `kvscope why` names it each time it is asked."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.vllm.observed import Observed, observed

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(600),
]

CLIENTS = 24
SECONDS = 75
SETTLED_SECONDS = 35
QUESTIONS = 10
MOST = 0.9
"""Share of first tokens' time in the part that the shortage is about."""
ROOMY = ("--num-gpu-blocks-override", "1000", "--max-model-len", "1024")


@dataclass(frozen=True)
class Regime:
    """A vLLM that lacks something, and the load that shows it."""

    options: tuple[str, ...]
    prompt_tokens: int
    output_tokens: int
    cause: str
    part: str
    patience: float = 120.0
    """Seconds after which a client gives up and asks again."""


REGIMES = {
    "sequences": Regime(
        ("--max-num-seqs", "4", *ROOMY), 64, 200, "sequence_limit", "wait_sequences"
    ),
    "blocks": Regime(
        ("--max-num-seqs", "64", "--num-gpu-blocks-override", "40", "--max-model-len", "512"),
        *(200, 200, "pool_full", "wait_blocks"),
    ),
    "tokens": Regime(
        (
            *("--max-num-seqs", "64", "--max-num-batched-tokens", "64"),
            *("--num-gpu-blocks-override", "1500", "--max-model-len", "4096"),
        ),
        *(1500, 4, "token_budget", "wait_tokens"),
    ),
    "impatience": Regime(
        ("--max-num-seqs", "4", *ROOMY), 64, 300, "sequence_limit", "wait_sequences", 1.0
    ),
}


async def client(url: str, regime: Regime, number: int, until: float) -> None:
    random = Random(number)
    async with httpx.AsyncClient() as session:
        while time.monotonic() < until:
            prompt = [random.randrange(256) for _ in range(regime.prompt_tokens)]
            body = {"model": "tiny", "prompt": prompt, "max_tokens": regime.output_tokens}
            with suppress(httpx.TimeoutException):
                await session.post(
                    f"{url}/v1/completions",
                    json=body | {"ignore_eos": True},
                    timeout=regime.patience,
                )


async def load(url: str, regime: Regime) -> None:
    until = time.monotonic() + SECONDS
    await asyncio.gather(*(client(url, regime, n, until) for n in range(CLIENTS)))


def causes(vllm: Observed) -> list[str]:
    found = []
    for _ in range(QUESTIONS):
        answer: Any = httpx.get(f"{vllm.url}/api/why", timeout=30).json()
        found.append(answer["engines"][0]["answer"]["chain"][0]["kind"])
        time.sleep(3)
    return found


@pytest.mark.parametrize("name", REGIMES)
def test_the_shortage_is_named_while_it_lasts(
    name: str, vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    regime = REGIMES[name]
    with (
        observed(vllm_python, models("llama"), tmp_path, *regime.options) as vllm,
        ThreadPoolExecutor(1) as beside,
    ):
        loading = beside.submit(asyncio.run, load(vllm.server.url, regime))
        time.sleep(SETTLED_SECONDS)
        assert causes(vllm) == [regime.cause] * QUESTIONS
        loading.result()
        page = vllm.page().splitlines()
    spent = {
        line.split('part="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1])
        for line in page
        if line.startswith("kvscope_request_seconds_total{") and 'phase="first_token"' in line
    }
    assert spent[regime.part] > MOST * sum(spent.values()), spent
