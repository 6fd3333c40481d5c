"""A vLLM in one process that serves a load of tests.support.prefix_trees, for `whatif_check`.

    PYTHON -m tools.checks.whatif_peer MODEL BLOCKS LOAD

in the Python of a vLLM, with this checkout on PYTHONPATH and KVSCOPE_OBSERVER_DIR set. LOAD is a
JSON object. The last line of its output is JSON: queried_tokens, hit_tokens and preemptions, as
vLLM itself counted them. It ends when its input does.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.prefix_trees import Load, drive

BLOCK_SIZE = 32
"""vLLM's smallest on a CPU."""
LINGER_SECONDS = 1.0
"""For the publisher, which looks ten times a second, and for its reader."""
_COUNTERS = {
    "vllm:prefix_cache_queries": "queried_tokens",
    "vllm:prefix_cache_hits": "hit_tokens",
    "vllm:num_preemptions": "preemptions",
}


class Vllm:
    """A `Server` of tests.support.prefix_trees."""

    def __init__(self, model: str, num_blocks: int, load: Load) -> None:
        from vllm import LLM

        self._llm: Any = LLM(
            model=model,
            enforce_eager=True,
            dtype=json.loads((Path(model) / "config.json").read_text())["dtype"],
            block_size=BLOCK_SIZE,
            max_model_len=load.longest,
            max_num_seqs=load.clients,
            max_num_batched_tokens=512,
            num_gpu_blocks_override=num_blocks,
            enable_prefix_caching=True,
            disable_log_stats=False,
        )
        self._engine = self._llm.llm_engine

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None:
        from vllm import SamplingParams

        sampling = SamplingParams(
            max_tokens=output_tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        self._engine.add_request(str(request), {"prompt_token_ids": list(prompt)}, sampling)

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        for output in self._engine.step():
            if output.finished:
                yield int(output.request_id), list(output.outputs[0].token_ids)

    def counted(self) -> dict[str, int]:
        return {
            _COUNTERS[metric.name]: metric.value
            for metric in self._llm.get_metrics()
            if metric.name in _COUNTERS
        }


def main() -> None:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        VLLM_PLUGINS="",
        VLLM_TARGET_DEVICE="cpu",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        HF_HUB_OFFLINE="1",
    )
    model, num_blocks, text = sys.argv[1:]
    load = Load(**json.loads(text))
    from kvscope_events.observers.vllm.plugin import install, site

    install()
    server = Vllm(model, int(num_blocks), load)
    assert site.observer is not None, "it is not observed"
    drive(server, load)
    time.sleep(LINGER_SECONDS)
    print(json.dumps(server.counted()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
