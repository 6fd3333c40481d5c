"""Output throughput of an observed vLLM over a bare one, and over vLLM's own means of observation.

    python -m tests.programs.vllm_throughput [--python PYTHON] [--pairs 20]

PYTHON is an interpreter with vLLM. For each rival two servers run: the observed one under
`kvscope run`, with its sidecar, and the rival, bare, with `--kv-cache-metrics` unsampled, or with
the KV event publisher. They serve the same batches in turns, and the idle one is stopped (SIGSTOP)
meanwhile. Ratios are those of two rounds that follow each other, so that drift cancels.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median

from tests.benchmarks.report import environment
from tests.support.process import ROOT
from tests.vllm.model import tiny_model
from tests.vllm.server import (
    VllmServer,
    free_port,
    kvscope_command,
    server_command,
    server_environment,
    started,
)

SEQUENCES = (1, 8, 32, 64)
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
LIMITS = ("--max-model-len", "1024", "--max-num-seqs", "64", "--num-gpu-blocks-override", "1024")
RIVALS = ("bare", "residency metrics", "event publisher")


def options_of(variant: str, folder: Path) -> tuple[str, ...]:
    """What the variant adds to the command line."""
    if variant == "residency metrics":
        return ("--kv-cache-metrics", "--kv-cache-metrics-sample", "1.0")
    if variant == "event publisher":
        endpoint = f"ipc://{folder}/kv.sock"
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
        return ("--kv-events-config", json.dumps(events))
    return ()


@contextmanager
def serving(variant: str, python: Path, model: Path, folder: Path) -> Iterator[VllmServer]:
    """A server of this variant; its files go to `folder`."""
    port = free_port()
    command = server_command(python, model, port, *LIMITS, *options_of(variant, folder))
    if variant == "observed":
        watch = kvscope_command("run", "--port", str(free_port()), "--no-gpu", "--")
        command = [*watch, *command]
    variables = server_environment(KVSCOPE_RUN_DIR=str(folder / "run"))
    with started(command, variables, port, folder, variant.replace(" ", "-")) as server:
        yield server


def serve(server: VllmServer, sequences: int, seed: int) -> float:
    """Output tokens a second of one batch of fresh prompts, in one call."""
    random = Random(seed)
    prompts = [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(sequences)]
    began = time.perf_counter()
    answer = server.post(
        "/v1/completions",
        model="tiny",
        prompt=prompts,
        max_tokens=OUTPUT_TOKENS,
        temperature=0,
        ignore_eos=True,
    )
    seconds = time.perf_counter() - began
    produced: int = answer["usage"]["completion_tokens"]
    assert produced == sequences * OUTPUT_TOKENS
    return produced / seconds


@contextmanager
def only(server: VllmServer, idle: VllmServer) -> Iterator[None]:
    """The idle one is stopped, with all its processes."""
    members = idle.members()
    for pid in members:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in members:
            os.kill(pid, signal.SIGCONT)


def compare(
    observed: VllmServer, rival: VllmServer, sequences: int, pairs: int
) -> dict[str, float]:
    """Rates and ratios over alternating pairs; the first pair is warm-up."""
    ratios, rates = [], []
    for number in range(pairs + 1):
        order = (observed, rival) if number % 2 else (rival, observed)
        rate = {}
        for server in order:
            with only(server, rival if server is observed else observed):
                rate[id(server)] = serve(server, sequences, seed=1000 * sequences + number)
        if number:
            ratios.append(rate[id(observed)] / rate[id(rival)])
            rates.append(rate[id(observed)])
    ratios.sort()
    return {
        "tokens_per_second": median(rates),
        "ratio": median(ratios),
        "lower_quartile": ratios[len(ratios) // 4],
        "upper_quartile": ratios[-1 - len(ratios) // 4],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "vllm" / "bin" / "python")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=RIVALS)
    parser.add_argument("--sequences", nargs="+", type=int, default=SEQUENCES)
    arguments = parser.parse_args()
    found: dict[str, dict[int, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        model = tiny_model(Path(name) / "model", "llama")
        for rival in arguments.rivals:
            folder = Path(name) / str(len(found))
            folder.mkdir(mode=0o700)
            with (
                serving("observed", arguments.python, model, folder) as observed,
                serving(rival, arguments.python, model, folder) as other,
            ):
                rows = found[rival] = {}
                for count in arguments.sequences:
                    row = rows[count] = compare(observed, other, count, arguments.pairs)
                    cells = "  ".join(f"{key} {value:.3f}" for key, value in row.items())
                    print(f"{rival}, {count} sequences: {cells}", file=sys.stderr, flush=True)
    print("| observed over … | " + " | ".join(f"{n} sequences" for n in arguments.sequences) + " |")
    print("|---" * (len(arguments.sequences) + 1) + "|")
    for rival, rows in found.items():
        cells = (
            f"{row['ratio']:.3f} ({row['lower_quartile']:.2f} to {row['upper_quartile']:.2f})"
            for row in rows.values()
        )
        print(f"| {rival} | " + " | ".join(cells) + " |")
    print(json.dumps({"environment": environment(), "pairs": arguments.pairs, "found": found}))


if __name__ == "__main__":
    main()
