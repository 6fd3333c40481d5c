"""Decode throughput of a tiny model at 1, 8 and 32 sequences, ours against real vLLM on the CPU.

    python -m benchmarks.decode [--vllm-python PYTHON]

The same checkpoint, prompts and lengths, greedy, ignoring end of sequence. Ours runs with bus and
exporter on; vLLM through its `LLM` class with default settings. Never both at once: an idle vLLM
keeps a fifth of a core busy. Tokens per second are output tokens over the whole wall time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.offline import OfflineEngine
from benchmarks.report import environment
from tests.support.checkpoints import make_checkpoint

SEQUENCES = (1, 8, 32)
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 256
ROUNDS = 5
NUM_BLOCKS = 4096


def prompts(count: int, seed: int) -> list[list[int]]:
    """Fresh tokens every round, so that no prefix cache helps."""
    random = Random(seed)
    return [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


class VllmPeer:
    """A process with vLLM that answers rounds over its standard input and output."""

    def __init__(self, python: str, model: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("vllm_peer.py")), str(model), str(OUTPUT_TOKENS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.version = self._answer()["version"]

    def run(self, batch: list[list[int]]) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(batch) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"peer"'):
                answer: dict[str, str] = json.loads(line)["peer"]
                return answer
        raise SystemExit("the vLLM process ended: is --vllm-python an interpreter with vLLM?")


Run = Callable[[list[list[int]]], float]


def seconds_per_round(run: Run) -> dict[int, list[float]]:
    """By number of sequences, without the first round, which warms up."""
    times = {}
    for count in SEQUENCES:
        batches = [prompts(count, 1000 * count + number) for number in range(ROUNDS + 1)]
        times[count] = [run(batch) for batch in batches][1:]
    return times


def ours(model: Path) -> dict[int, list[float]]:
    engine = OfflineEngine(str(model), NUM_BLOCKS, max(SEQUENCES), observed=True)
    try:
        return seconds_per_round(lambda batch: engine.run(batch, OUTPUT_TOKENS))
    finally:
        engine.close()


def compare(model: Path, vllm_python: str | None) -> tuple[dict[str, dict[str, float]], str]:
    """Ours, vLLM, ours again, so that drift shows; never both. And vLLM's version."""
    before = ours(model)
    theirs: dict[int, list[float]] = {}
    version = ""
    if vllm_python is not None:
        peer = VllmPeer(vllm_python, model)
        version = peer.version
        theirs = seconds_per_round(peer.run)
        peer.close()
    after = ours(model)
    rows = {}
    for count in SEQUENCES:
        tokens = count * OUTPUT_TOKENS
        seconds = median(before[count] + after[count])
        row = {
            "kvscope": tokens / seconds,
            "first": tokens / median(before[count]),
            "second": tokens / median(after[count]),
            "ms_per_step": seconds / OUTPUT_TOKENS * 1e3,
        }
        if theirs:
            row["vllm"] = tokens / median(theirs[count])
            row["ratio"] = row["kvscope"] / row["vllm"]
        rows[str(count)] = row
        cells = "  ".join(f"{key} {value:9.2f}" for key, value in row.items())
        print(f"{count:3d} sequences  {cells}", file=sys.stderr)
    return rows, version


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm-python", help="interpreter of an environment that has vLLM")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    import torch

    with tempfile.TemporaryDirectory() as folder:
        model = make_checkpoint(
            Path(folder) / "tiny",
            "llama",
            dtype=getattr(torch, arguments.dtype),
            hidden_size=128,
            intermediate_size=256,
            head_dim=32,
            max_position_embeddings=1024,
            vocab_size=264,
        )
        rows, version = compare(model, arguments.vllm_python)
    facts = environment() | ({"vllm": version} if version else {})
    print(
        json.dumps(
            {
                "environment": facts,
                "dtype": arguments.dtype,
                "torch_threads": torch.get_num_threads(),
                "output_tokens_per_second": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
