"""Settings of a real vLLM: on the card, or for a rehearsal on a CPU."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from benchmarks.on_a_gpu.nvml import read
from benchmarks.on_a_gpu.step import CONTEXT, SEQUENCES, STEPS
from tests.vllm.server import card_environment, server_environment

NAME = "llama-8b"
MAX_MODEL_LEN = 2048
GIB = 2**30
LEFT_BYTES = 2 * GIB
"""The most that is in use on a card which a former vLLM has left."""
FREE_SECONDS = 40.0
ON_A_CARD = {
    **{"load_format": "dummy", "dtype": "bfloat16", "gpu_memory_utilization": 0.88},
    **{"max_model_len": MAX_MODEL_LEN, "max_num_seqs": 256, "max_num_batched_tokens": 8192},
}
"""With options whose defaults differ in a server, which so reuses what the first one compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A vLLM, and how much is asked of it."""

    python: Path
    model: Path
    engine: dict[str, Any] | None
    """Options of vLLM's `LLM`; None: those for a CPU."""
    server: tuple[str, ...]
    """Options of vLLM's server."""
    environment: Callable[[], dict[str, str]]
    """Variables of the server."""
    batches: tuple[int, ...]
    """Sequences of the batches that are compared."""
    output: int
    """Tokens of each of their sequences."""
    rounds: int
    """Comparisons, at most."""
    compare_seconds: float
    """After which no further round of comparisons begins."""
    decoded: tuple[int, ...]
    """Sequences of the steps that are timed alone."""
    context: int
    steps: int
    users: int
    """Requests in flight at the server."""
    load_seconds: float
    start_seconds: float = 240.0


def on_a_card(python: Path, model: Path) -> Setting:
    """Weights are dummies; of the model only the configuration and tokenizer are read."""
    named = [(f"--{name.replace('_', '-')}", str(value)) for name, value in ON_A_CARD.items()]
    return Setting(
        python=python,
        model=model.resolve(),
        engine=ON_A_CARD,
        # 240 tokens for each of the users: less than their conversations have.
        server=(*(word for pair in named for word in pair), "--num-gpu-blocks-override", "1440"),
        environment=card_environment,
        batches=(8, 64, 256),
        output=128,
        rounds=12,
        compare_seconds=110,
        decoded=SEQUENCES,
        context=CONTEXT,
        steps=STEPS,
        users=96,
        load_seconds=90,
    )


def on_a_cpu(python: Path, model: Path) -> Setting:
    """As small as all parts allow."""
    server = ("--max-model-len", str(MAX_MODEL_LEN), "--num-gpu-blocks-override", "180")
    return Setting(
        python=python,
        model=model.resolve(),
        engine=None,
        server=(*server, "--block-size", "32", "--enforce-eager", "--max-num-seqs", "16"),
        environment=server_environment,
        batches=(2, 8),
        output=32,
        rounds=2,
        compare_seconds=60,
        decoded=(1, 4),
        context=128,
        steps=16,
        users=24,
        load_seconds=40,
    )


def wait_for_the_card() -> None:
    """Until what ran on it before is gone; not for ever: vLLM itself says what it lacks."""
    until = time.monotonic() + FREE_SECONDS
    with suppress(pynvml.NVMLError):  # a rehearsal
        while read().used > LEFT_BYTES and time.monotonic() < until:
            time.sleep(0.5)
