"""Decode throughput of a tiny model at 1, 8 and 32 sequences, ours against real vLLM on the CPU.

    python -m benchmarks.decode [--vllm-python PYTHON]

The same checkpoint, prompts and lengths, greedy, ignoring end of sequence. Ours runs with bus and
exporter on; vLLM through its `LLM` class. Never both at once: an idle vLLM
keeps a fifth of a core busy. Tokens per second are output tokens over the whole wall time.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.offline import OfflineEngine
from benchmarks.report import report
from tests.support.checkpoints import make_checkpoint
from tools.checks.throughput import running

SEQUENCES = (1, 8, 32)
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 256
ROUNDS = 5
NUM_BLOCKS = 4096


def ours(model: Path) -> dict[int, float]:
    """Output tokens a second by number of sequences."""
    engine = OfflineEngine(str(model), NUM_BLOCKS, max(SEQUENCES), observed=True)

    def rate(count: int, seed: int) -> float:
        random = Random(seed)  # fresh tokens every round, so that no prefix cache helps
        batch = [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
        return count * OUTPUT_TOKENS / engine.run(batch, OUTPUT_TOKENS)

    try:
        return rates(rate)
    finally:
        engine.close()


def theirs(python: Path, model: Path, folder: Path) -> dict[int, float]:
    with running("vllm", "nothing", python, model, folder) as peer:
        tokens = {"prompt": PROMPT_TOKENS, "output": OUTPUT_TOKENS}
        return rates(lambda count, seed: peer.rates(False, count, seed, **tokens)["elapsed"])


def rates(rate: Callable[[int, int], float]) -> dict[int, float]:
    """Medians, without the first round, which warms up."""
    return {
        count: median([rate(count, 1000 * count + n) for n in range(ROUNDS + 1)][1:])
        for count in SEQUENCES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm-python", type=Path, help="of an environment that has vLLM")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    import torch

    with tempfile.TemporaryDirectory() as name:
        model = make_checkpoint(
            Path(name) / "tiny",
            "llama",
            dtype=getattr(torch, arguments.dtype),
            hidden_size=128,
            intermediate_size=256,
            head_dim=32,
            max_position_embeddings=1024,
            vocab_size=264,
        )
        found = {"first": ours(model)}
        if arguments.vllm_python is not None:
            found["vllm"] = theirs(arguments.vllm_python, model, Path(name))
        found["second"] = ours(model)  # so that drift shows
    rows: dict[str, object] = {}
    for count in SEQUENCES:
        row = {side: each[count] for side, each in found.items()}
        row["kvscope"] = (row["first"] + row["second"]) / 2
        rows[f"{count} sequences"] = row | (
            {"ratio": row["kvscope"] / row["vllm"]} if "vllm" in row else {}
        )
    report("decode", rows, dtype=arguments.dtype, torch_threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
