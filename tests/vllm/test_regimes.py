"""A vLLM driven into one shortage after the other: `kvscope why` names it each time it is asked."""

import asyncio
import json
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
CONNECTOR = Path(__file__).with_name("holding.py")
ROOMY = ("--num-gpu-blocks-override", "1000", "--max-model-len", "1024")


@dataclass(frozen=True)
class Regime:
    """A vLLM that lacks something, and the load that shows it."""

    options: tuple[str, ...]
    prompt_tokens: int
    output_tokens: int
    cause: str
    part: str
    """That of the time added to first tokens."""
    patience: float = 120.0
    """Seconds after which a client gives up and asks again."""
    long_prompt_tokens: int = 0
    """Those of one client, which wants one token, and asks again after a pause."""


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
    "transfer": Regime(
        (
            *("--max-num-seqs", "64", *ROOMY, "--kv-transfer-config"),
            json.dumps(
                {
                    "kv_connector": "LateConnector",
                    "kv_connector_module_path": CONNECTOR.stem,
                    "kv_connector_extra_config": {"give_up_seconds": 4},
                    "kv_role": "kv_both",
                }
            ),
        ),
        *(64, 8, "transfer", "wait_transfer"),
    ),
    "prefill": Regime(
        (
            *("--max-num-seqs", "64", "--max-num-batched-tokens", "16384"),
            *("--num-gpu-blocks-override", "6000", "--max-model-len", "16384"),
        ),
        *(64, 100, "interference", "prefill_others"),
        long_prompt_tokens=6000,
    ),
}


async def client(url: str, regime: Regime, number: int, until: float) -> None:
    random = Random(number)
    async with httpx.AsyncClient() as session:
        while time.monotonic() < until:
            is_long = regime.long_prompt_tokens and number == 0
            length = regime.long_prompt_tokens if is_long else regime.prompt_tokens
            prompt = [random.randrange(256) for _ in range(length)]
            tokens = 1 if is_long else regime.output_tokens
            body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens}
            with suppress(httpx.TimeoutException):
                await session.post(
                    f"{url}/v1/completions",
                    json=body | {"ignore_eos": True},
                    timeout=regime.patience,
                )
            if is_long:
                await asyncio.sleep(0.5)


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
        observed(
            vllm_python, models("llama"), tmp_path, *regime.options, modules=(CONNECTOR,)
        ) as vllm,
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
    if regime.long_prompt_tokens:
        del spent["prefill_own"]  # theirs, not added to anybody's
    assert spent[regime.part] > MOST * sum(spent.values()), spent
