"""A vLLM without its server, in one process, with a means of observation that can be taken away.

Serves orders from standard input, one JSON object a line: {"on", "sequences", "seed"}. Answers with
{"elapsed", "cpu"}: output tokens per elapsed second and per second of the process's CPU time, its
observer's threads included. Taken away, the process runs as if started without it, so that both
sides of a comparison have one memory layout, one warm-up and one neighbourhood.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 64
MEANS = ("nothing", "observer", "residency metrics", "event publisher")
"""`nothing` compares the process with itself: what the measurement scatters."""


def engine(means: str, model: Path, folder: Path) -> Any:
    """vLLM's `LLM` with this means."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    options: dict[str, Any] = {}
    if means == "residency metrics":
        options = {"kv_cache_metrics": True, "kv_cache_metrics_sample": 1.0}
    elif means == "event publisher":
        from vllm.config import KVEventsConfig

        endpoint = f"ipc://{folder}/kv.sock"
        options["kv_events_config"] = KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=endpoint
        )
    return LLM(
        model=str(model),
        enforce_eager=True,
        dtype="float32",
        block_size=32,
        max_model_len=1024,
        max_num_seqs=64,
        num_gpu_blocks_override=2048,
        disable_log_stats=False,  # as in a server
        **options,
    )


def switch_of(means: str, llm: Any) -> Callable[[bool], None]:
    """Takes the means away, or puts it back."""
    pool = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    collector = pool.metrics_collector

    def observer(on: bool) -> None:
        from kvscope_events.observers.vllm.plugin import patches, site

        assert site.observer is not None
        assert site.observer.live
        site.observer.depth = 0 if on else 1  # or its idle thread takes the silence for idleness
        for owner, name, original, wrapper in patches.replaced:
            setattr(owner, name, wrapper if on else original)

    def residency_metrics(on: bool) -> None:
        assert collector is not None
        pool.metrics_collector = collector if on else None

    def event_publisher(on: bool) -> None:
        pool.enable_kv_cache_events = on

    def nothing(on: bool) -> None:
        return

    return dict(zip(MEANS, (nothing, observer, residency_metrics, event_publisher), strict=True))[
        means
    ]


def serve(llm: Any, sequences: int, seed: int) -> dict[str, float]:
    """Output tokens a second of one batch of fresh prompts, by the second's kind."""
    from vllm import SamplingParams

    random = Random(seed)
    prompts = [
        {"prompt_token_ids": [random.randrange(256) for _ in range(PROMPT_TOKENS)]}
        for _ in range(sequences)
    ]
    sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
    began, cpu_began = time.perf_counter(), time.process_time()
    answers = llm.generate(prompts, sampling, use_tqdm=False)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    produced = sum(len(answer.outputs[0].token_ids) for answer in answers)
    assert produced == sequences * OUTPUT_TOKENS
    return {"elapsed": produced / elapsed, "cpu": produced / cpu}


def main() -> None:
    means, model, folder = sys.argv[1:]
    llm = engine(means, Path(model), Path(folder))
    switch = switch_of(means, llm)
    print(json.dumps({"peer": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        # With an empty cache on both sides, so that neither has more to evict than the other.
        assert llm.reset_prefix_cache()
        switch(order["on"])
        rates = serve(llm, order["sequences"], order["seed"])
        assert llm.reset_prefix_cache()
        print(json.dumps({"peer": rates}), flush=True)


if __name__ == "__main__":
    main()
