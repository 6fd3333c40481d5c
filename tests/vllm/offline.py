"""A vLLM without its server, in one process, with a means of observation that can be taken away.

    python -m tests.vllm.offline MEANS MODEL FOLDER [ENGINE]

ENGINE: JSON with the options of vLLM's `LLM`, instead of those for a CPU.

Serves orders from standard input, one JSON object a line: {"on", "sequences", "seed"}, and where
they differ from the usual {"prompt", "output"} tokens. Answers with {"elapsed", "cpu"}: output
tokens per elapsed second and per second of the process's CPU time, its observer's threads
included; and with the seconds between its steps. Taken away, the process runs as if started without
it, so that both sides of a comparison have one memory layout, one warm-up and one neighbourhood.
{"memory"} asks what torch itself says of the device.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 64
MEANS = ("nothing", "observer", "residency metrics", "event publisher")
"""`nothing` compares the process with itself: what the measurement scatters."""
ON_A_CPU = {
    "enforce_eager": True,
    "dtype": "float32",
    "block_size": 32,
    "max_model_len": 1024,
    "max_num_seqs": 64,
    "num_gpu_blocks_override": 2048,
}


def engine(means: str, model: Path, folder: Path, settings: dict[str, Any]) -> Any:
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
        disable_log_stats=False,  # as in a server
        **settings,
        **options,
    )


class Steps:
    """When the engine's steps gave their tokens, and how many each."""

    def __init__(self, llm: Any) -> None:
        client = llm.llm_engine.engine_core
        self._output = client.get_output
        self._seen: list[tuple[float, int]] = []
        client.get_output = self._noted

    def _noted(self) -> Any:
        output = self._output()
        if output.outputs:
            self._seen.append((time.perf_counter(), len(output.outputs)))
        return output

    def gaps(self, sequences: int) -> list[float]:
        """Seconds between two steps that gave each sequence a token, since the last call.

        So steps with a part of a prompt are not among them.
        """
        seen, self._seen = self._seen, []
        return [
            now - before for (before, had), (now, has) in pairwise(seen) if had == has == sequences
        ]


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


def serve(
    llm: Any, sequences: int, seed: int, prompt: int = PROMPT_TOKENS, output: int = OUTPUT_TOKENS
) -> dict[str, float]:
    """Output tokens a second of one batch of fresh prompts, by the second's kind."""
    from vllm import SamplingParams

    random = Random(seed)
    prompts = [
        {"prompt_token_ids": [random.randrange(256) for _ in range(prompt)]}
        for _ in range(sequences)
    ]
    sampling = SamplingParams(max_tokens=output, temperature=0, ignore_eos=True)
    began, cpu_began = time.perf_counter(), time.process_time()
    answers = llm.generate(prompts, sampling, use_tqdm=False)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    produced = sum(len(answer.outputs[0].token_ids) for answer in answers)
    assert produced == sequences * output
    return {"elapsed": produced / elapsed, "cpu": produced / cpu}


def memory() -> dict[str, float]:
    """Bytes in torch's allocator, by their names in kvscope's metrics; nothing without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    said = torch.cuda.memory_stats()
    names = ("allocated", "active", "reserved", "requested", "inactive_split")
    current = {name: said[f"{name}_bytes.all.current"] for name in names}
    peaks = {f"{name}_peak": said[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved")}
    return current | peaks


def main() -> None:
    means, model, folder, *settings = sys.argv[1:]
    chosen = json.loads(settings[0]) if settings else ON_A_CPU
    llm = engine(means, Path(model), Path(folder), chosen)
    switch = switch_of(means, llm)
    steps = Steps(llm)
    print(json.dumps({"peer": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "memory" in order:
            print(json.dumps({"peer": memory()}), flush=True)
            continue
        # With an empty cache on both sides, so that neither has more to evict than the other.
        assert llm.reset_prefix_cache()
        switch(order.pop("on"))
        rates = serve(llm, **order)
        assert llm.reset_prefix_cache()
        print(json.dumps({"peer": rates, "gaps": steps.gaps(order["sequences"])}), flush=True)


if __name__ == "__main__":
    main()
