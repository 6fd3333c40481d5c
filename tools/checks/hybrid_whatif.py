"""Predictions for a model with several kinds of KV cache against a vLLM that really runs so.

    python -m tools.checks.hybrid_whatif [--model NAME] [--python P] [--requests N] [--questions]

A vLLM serves a load with a pool of C blocks, and `/api/whatif` of a sidecar beside it says what
C/2, 2 C and 4 C would have found. Then the same load is served by vLLMs with pools of these sizes.
Prints a line for each; the hits that count are vLLM's own. Exit status 1 if a hit ratio that is
not a lower bound is off by more than a point.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.support.hybrid_checkpoints import make_hybrid
from tests.support.pages import sample
from tests.support.prefix_trees import Load
from tests.support.process import ROOT, kvscope
from tests.support.waiting import wait_for
from tests.vllm.server import free_port

SCALES = (0.5, 2.0, 4.0)
BLOCKS = {"gemma3": 480, "qwen3_next": 200}
"""Usable ones, of the observed pool."""
LOAD = Load(requests=700, clients=4, conversations=24)
QUESTIONS = replace(LOAD, systems=24, system_tokens=480, turns=1, user_tokens=64)
LIMIT = 0.01
"""Largest error of a hit ratio that passes."""
_Counts = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of one server after the load."""

    usable_blocks: int
    hit_tokens: int
    """By vLLM's own count, as the next."""
    preemptions: int
    whatif: dict[str, Any]

    def hit_ratio(self, queried_blocks: int, name_tokens: int) -> float:
        """Share of the blocks that could be found, which are the same at every size."""
        return self.hit_tokens / name_tokens / queried_blocks


@contextmanager
def served(python: Path, model: Path, blocks: int, load: Load, folder: str) -> Iterator[_Counts]:
    """vLLM's own counts after the load, while it is still there."""
    command = [str(python), "-m", "tools.checks.whatif_peer", str(model), str(blocks + 1)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KVSCOPE_OBSERVER_DIR": folder}
    with subprocess.Popen(
        [*command, json.dumps(asdict(load))],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdout is not None
        try:
            counts = next((line for line in peer.stdout if line.startswith("{")), None)
            assert counts is not None, "vLLM has not served the load"
            yield json.loads(counts)
        finally:
            peer.kill()  # all has been counted


def serve(python: Path, model: Path, blocks: int, load: Load) -> Run:
    """The load, served by a vLLM with that many usable blocks, and what kvscope says then."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
        endpoint = f"vllm=ipc://{folder}/*"
        with (
            kvscope("sidecar", "--events", endpoint, "--port", str(port), "--no-gpu"),
            served(python, model, blocks, load, folder) as counts,
        ):
            hits = counts["hit_tokens"]
            wait_for(lambda: _folded(url, hits), "kvscope has counted what vLLM has", 60)
            (engine,) = httpx.get(f"{url}/api/whatif", timeout=60).json()["engines"]
            return Run(
                usable_blocks=blocks,
                hit_tokens=hits,
                preemptions=counts["preemptions"],
                whatif=engine["answer"],
            )


def _folded(url: str, hit_tokens: int) -> bool:
    page = httpx.get(f"{url}/metrics", timeout=30).text
    return sample(page, "kvscope_prefix_cache_hit_tokens_total", phase="first") == hit_tokens


def compare(python: Path, model: Path, blocks: int, load: Load) -> bool:
    """Whether every prediction is near enough."""
    observed_run = serve(python, model, blocks, load)
    name_tokens: int = observed_run.whatif["block_tokens"]
    (curve,) = (one for one in observed_run.whatif["curves"] if one["window"] == "start")
    points = {point["scale"]: point for point in curve["points"]}
    queried: int = points[1.0]["queried_blocks"]
    good = True
    for scale in (1.0, *SCALES):
        run = observed_run if scale == 1 else serve(python, model, int(scale * blocks), load)
        point = points[scale]
        real = run.hit_ratio(queried, name_tokens)
        error = point["hit_ratio"] - real
        good &= abs(error) <= LIMIT or point["is_lower_bound"]
        print(
            f"{run.usable_blocks:5} blocks ({scale:g} x)  predicted {point['hit_ratio']:.4f}"
            f"{' or more' if point['is_lower_bound'] else ''}  real {real:.4f}  "
            f"difference {100 * error:+.2f} points  ({run.hit_tokens:,.0f} tokens hit, "
            f"{run.preemptions:.0f} preemptions)",
            flush=True,
        )
    return good


def main(description: str, compare: Callable[[Path, Path, int, Load], bool]) -> int:
    """Compare as the arguments say; returns the exit status.

    compare: called with vLLM's Python, the checkpoint, its usable blocks and the load.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--model", choices=BLOCKS, default="gemma3")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    parser.add_argument("--requests", type=int, default=LOAD.requests)
    parser.add_argument(
        "--questions",
        action="store_true",
        help="single questions below long system prompts instead of conversations",
    )
    given = parser.parse_args()
    load = replace(QUESTIONS if given.questions else LOAD, requests=given.requests)
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
        model = make_hybrid(Path(folder) / "model", given.model)
        return int(not compare(given.python, model, BLOCKS[given.model], load))


if __name__ == "__main__":
    sys.exit(main(__doc__, compare))
