"""Models with several kinds of KV cache as a real vLLM serves them here, and a load for them."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from prometheus_client.parser import text_string_to_metric_families

from tests.support.prefix_trees import Load
from tests.vllm.observed import Observed, outgrow
from tests.vllm.over_http import serve_over_http
from tests.vllm.server import VllmServer

_COMMON = ("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "8")


_HAS_AMX = "amx_tile" in Path("/proc/cpuinfo").read_text()
"""vLLM's kernels for latents: those for AMX take blocks of 32 tokens, the others of 16."""


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """A checkpoint, and the options of the server for it."""

    checkpoint: str
    kinds: tuple[str, ...]
    """Kinds of its groups, in alphabetical order."""
    num_blocks: int
    options: tuple[str, ...] = ()

    def command(self) -> tuple[str, ...]:
        return (*_COMMON, "--num-gpu-blocks-override", str(self.num_blocks), *self.options)


HYBRIDS = {
    "gemma3": Hybrid(
        checkpoint="gemma3",
        kinds=("full_attention", "sliding_window", "sliding_window"),
        num_blocks=150,
    ),
    "gpt_oss": Hybrid(
        checkpoint="gpt_oss", kinds=("full_attention", "sliding_window"), num_blocks=110
    ),
    "qwen3_next": Hybrid(
        checkpoint="qwen3_next", kinds=("full_attention", "state"), num_blocks=110
    ),
    # vLLM then keeps one state a request, and no block is found again.
    "qwen3_next, cache mode none": Hybrid(
        checkpoint="qwen3_next",
        kinds=("full_attention", "state"),
        num_blocks=60,
        options=("--no-enable-prefix-caching",),
    ),
    "deepseek_v2": Hybrid(
        checkpoint="deepseek_v2",
        kinds=("full_attention",),
        num_blocks=150 if _HAS_AMX else 300,
        options=("--block-size", "32" if _HAS_AMX else "16"),
    ),
}


LOAD = Load(requests=160, conversations=6)
"""For pools as small as those above; the tokens are ids, since some of the models speak a template
of their own in chats."""


def converse(server: VllmServer) -> None:
    """Conversations, requests that outgrow the pool, and prompts too short for any block."""
    serve_over_http(server.url, LOAD)
    outgrow(server)
    random = Random(5)
    for _ in range(12):
        server.complete("x" * random.randrange(1, 80), 2)


def logged_size(server: VllmServer) -> tuple[int, str]:
    """Tokens, and sequences of the longest length, as vLLM's log line has them."""
    found = re.search(
        r"KV cache size: ([\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per request: "
        r"([\d.]+)x",
        server.log,
    )
    assert found is not None, server.tail()
    return int(found[1].replace(",", "")), found[2]


def families(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels; those of a single engine, without what identifies it."""
    samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = tuple(
                sorted(
                    (label, text)
                    for label, text in sample.labels.items()
                    if label not in ("model_name", "engine")
                )
            )
            samples[sample.name, labels] = sample.value
    return samples


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """Words of the witness inside vLLM about the groups of its pool."""

    asked: list[tuple[int, int, list[int]]]
    """Tokens of a request, tokens found, and what each group alone had; by admission."""
    first: list[bool]
    """Whether each of these admissions was a request's first."""
    evictions: Counter[int]
    """By group."""


def witnessed(vllm: Observed) -> Witnessed:
    """Read what it wrote so far; empty for a pool whose groups cannot be asked apart."""
    asked, first, evictions = [], [], Counter[int]()
    for file in (vllm.folder / "witness").glob("*.groups"):
        for line in map(json.loads, file.read_text().splitlines()):
            if "evicted" in line:
                evictions[line["evicted"]] += 1
            else:
                asked.append((line["asked"], line["found"], line["alone"]))
                first.append(line["first"])
    return Witnessed(asked=asked, first=first, evictions=evictions)
