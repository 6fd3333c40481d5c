"""The adviser on a running vLLM whose layers are of several kinds: asked, obeyed, measured again.

    python -m tools.checks.hybrid_advice [--model NAME] [--python P] [--requests N] [--questions]

`kvscope run` watches a vLLM with a small pool while requests are sent to it, and is asked for
advice. Its first proposal, and that to keep more windows and states if it makes one, are carried
out one after the other: the same requests are sent again. Exit status 1 if what is saved is off by
more than a fifth.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.pages import sample
from tests.support.prefix_trees import Load
from tests.support.waiting import wait_for
from tests.vllm.counters import total
from tests.vllm.observed import Observed, observed
from tests.vllm.over_http import serve_over_http
from tools.checks.hybrid_whatif import main

LIMIT = 0.2
"""Largest error that passes, as a share of what is saved."""
_RETENTION = "prefix_cache_retention_interval"
_HITS = "kvscope_prefix_cache_hit_tokens_total"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of one server after the load."""

    hit_tokens: float
    """By vLLM's own count, as the next."""
    queried_tokens: float
    prefill_tokens: float
    advice: dict[str, Any]


def serve(python: Path, model: Path, num_blocks: int, load: Load, *further: str) -> Run:
    """The load, over HTTP. further: options of vLLM."""
    options = (
        *("--dtype", "bfloat16", "--max-model-len", str(load.longest)),
        *("--max-num-seqs", str(load.clients), "--max-num-batched-tokens", "512"),
        *("--num-gpu-blocks-override", str(num_blocks), *further),
    )
    with (
        tempfile.TemporaryDirectory(prefix="kvscope-") as folder,
        observed(python, model, Path(folder), *options, ranks=0) as vllm,
    ):
        serve_over_http(vllm.server.url, load)
        vllm.server.wait_idle()
        page = vllm.server.page()
        hits = total(page, "vllm:prefix_cache_hits_total")
        wait_for(lambda: vllm.value(_HITS, phase="first") == hits, "kvscope has counted them")
        return Run(
            hit_tokens=hits,
            queried_tokens=total(page, "vllm:prefix_cache_queries_total"),
            prefill_tokens=sample(vllm.page(), "kvscope_step_tokens_total", phase="prefill") or 0,
            advice=_advice(vllm),
        )


def _advice(vllm: Observed) -> dict[str, Any]:
    (engine,) = httpx.get(f"{vllm.url}/api/advice", timeout=60).json()["engines"]
    answer: dict[str, Any] = engine["answer"]
    return answer


def compare(python: Path, model: Path, usable_blocks: int, load: Load) -> bool:
    """Whether the gains of the proposals come as predicted."""
    before = serve(python, model, usable_blocks + 1, load)
    proposals = before.advice["proposals"]
    if not proposals:
        print(f"nothing is proposed: {before.advice['declined']}")
        return False
    first, *others = proposals
    tried = [first, *(one for one in others if one["option"] == _RETENTION)]
    outcomes = []
    for proposal in tried:
        print(
            f"{proposal['text']} (confidence {proposal['confidence']}: {proposal['because']})",
            flush=True,
        )
        value = str(int(proposal["proposed"]))
        after = serve(python, model, usable_blocks + 1, load, proposal["flag"], value)
        outcomes.append(_comes(proposal["gain"], before, after))
    return all(outcomes)


def _comes(gain: dict[str, Any], before: Run, after: Run) -> bool:
    """Print a proposal's figures; returns whether they are near enough."""
    predicted = gain["saved_tokens_per_second"] * before.advice["seconds"]
    saved = before.prefill_tokens - after.prefill_tokens
    ratio = gain["hit_ratio_from"] * after.hit_tokens / before.hit_tokens
    print(f"{'':32}{'before':>10}{'predicted':>12}{'outcome':>10}")
    for what, was, then, outcome in (
        ("hit ratio, %", 100 * gain["hit_ratio_from"], 100 * gain["hit_ratio_to"], 100 * ratio),
        ("prompt tokens saved", 0.0, predicted, saved),
        ("of all prompt tokens", before.queried_tokens, 0.0, after.queried_tokens),
    ):
        print(f"{what:32}{was:>10,.1f}{then:>12,.1f}{outcome:>10,.1f}")
    return bool(abs(saved - predicted) <= LIMIT * predicted)


if __name__ == "__main__":
    sys.exit(main(__doc__, compare))
