"""Predictions for a model with several kinds of KV cache against a vLLM that really runs so.

    python -m tools.checks.hybrid_live [--model NAME] [--python PYTHON] [--requests N]

One observed vLLM serves a load with a pool of C blocks. Its `/api/whatif` says what C/2, 2 C and
4 C would have found, its `/api/advice` what to change. Then the same load is served by vLLMs with
pools of these sizes, and by one with the size that was proposed first. Prints a line for each; the
hits that count are those on vLLM's own page. Exit status 1 if a hit ratio is off by more than a
point, or what a proposal saves by more than a fifth.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.support.hybrid_checkpoints import make_hybrid
from tests.support.prefix_trees import Load
from tests.support.process import ROOT
from tests.support.waiting import wait_for
from tests.vllm.hybrids import families
from tests.vllm.observed import Observed, observed
from tests.vllm.over_http import serve_over_http

SCALES = (0.5, 2.0, 4.0)
BLOCKS = {"gemma3": 280, "qwen3_next": 160}
"""Usable ones, of the observed pool."""
LOAD = Load(requests=700, clients=4, conversations=24)
LIMIT = 0.01
"""Largest error of a hit ratio that passes."""
GAIN_LIMIT = 0.2
"""Largest error of what a proposal saves, as a share of it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of one server after the load."""

    usable_blocks: int
    hit_tokens: float
    """By vLLM's own count."""
    queried_tokens: float
    prefill_tokens: float
    preemptions: float
    whatif: dict[str, Any]
    advice: dict[str, Any]

    def hit_ratio(self, queried_blocks: int, name_tokens: int) -> float:
        """Of the blocks that could be found, which are the same at every size."""
        return self.hit_tokens / name_tokens / queried_blocks


def serve(python: Path, model: Path, blocks: int, load: Load) -> Run:
    """The load, served by a vLLM with that many usable blocks."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as name:
        options = (
            *("--dtype", "bfloat16", "--max-model-len", str(-(-load.longest // 64) * 64)),
            *("--max-num-seqs", str(load.clients), "--max-num-batched-tokens", "1024"),
            *("--num-gpu-blocks-override", str(blocks + 1)),  # one is reserved
        )
        with observed(python, model, Path(name), *options, ranks=0) as vllm:
            serve_over_http(vllm.server.url, load)
            vllm.server.wait_idle()
            page = families(vllm.server.page())
            hits = _total(page, "vllm:prefix_cache_hits_total")
            wait_for(lambda: _folded(vllm, hits), "kvscope has counted what vLLM has")
            ours = families(vllm.page())
            return Run(
                usable_blocks=blocks,
                hit_tokens=hits,
                queried_tokens=_total(page, "vllm:prefix_cache_queries_total"),
                prefill_tokens=_total(ours, "kvscope_step_tokens_total", phase="prefill"),
                preemptions=_total(page, "vllm:num_preemptions_total"),
                whatif=_answer(vllm.url, "whatif"),
                advice=_answer(vllm.url, "advice"),
            )


def _folded(vllm: Observed, hit_tokens: float) -> bool:
    return vllm.value("kvscope_prefix_cache_hit_tokens_total", phase="first") == hit_tokens


def _total(page: dict[Any, float], name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(v for (found, having), v in page.items() if found == name and wanted <= set(having))


def _answer(url: str, question: str) -> dict[str, Any]:
    (engine,) = httpx.get(f"{url}/api/{question}", timeout=60).json()["engines"]
    answer: dict[str, Any] = engine["answer"]
    return answer


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
    return carried_out(python, model, load, observed_run) and good


def carried_out(python: Path, model: Path, load: Load, before: Run) -> bool:
    """Obey the first proposal; whether its gain comes as predicted."""
    proposals = before.advice["proposals"]
    if not proposals:
        print(f"nothing is proposed: {before.advice['declined']}")
        return False
    first = proposals[0]
    print(f"proposed first: {first['text']} ({first['confidence']}: {first['because']})")
    if first["option"] != "num_gpu_blocks_override":
        return False
    after = serve(python, model, int(first["proposed"]) - 1, load)
    gain, seconds = first["gain"], before.advice["seconds"]
    predicted = gain["saved_tokens_per_second"] * seconds
    saved = before.prefill_tokens - after.prefill_tokens
    ratio = gain["hit_ratio_from"] * after.hit_tokens / before.hit_tokens
    print(f"hit ratio: predicted {gain['hit_ratio_to']:.4f}, outcome {ratio:.4f}")
    print(f"prompt tokens saved: predicted {predicted:,.0f}, outcome {saved:,.0f}")
    return abs(saved - predicted) <= GAIN_LIMIT * predicted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=BLOCKS, default="gemma3")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    parser.add_argument("--requests", type=int, default=LOAD.requests)
    given = parser.parse_args()
    load = replace(LOAD, requests=given.requests)
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
        model = make_hybrid(Path(folder), given.model)
        return int(not compare(given.python, model, BLOCKS[given.model], load))


if __name__ == "__main__":
    sys.exit(main())
