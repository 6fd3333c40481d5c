"""vLLM's own scheduler for recorded calls, in a process of the server's Python.

It needs no weights, no GPU and no network. One JSON object a line comes in, and one goes out.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvscope.twin.replay import Call, ReplayError, Row, answer

_MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256,
}
"""A scheduler asks a model for its length, no more."""


class VllmBook:
    """vLLM's scheduler with these options of its engine."""

    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.core import kv_cache_utils as utils
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        model = folder / "config.json"
        model.write_text(json.dumps(_MODEL | {"max_position_embeddings": options["max_model_len"]}))
        config = _built(
            EngineArgs,
            model=str(folder),
            skip_tokenizer_init=True,
            enforce_eager=True,
            async_scheduling=False,
            **options,
        ).create_engine_config()
        blocks, size = options["num_gpu_blocks_override"], options["block_size"]
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.block_size = size
        config.scheduler_config.async_scheduling = False
        spec = _built(
            FullAttentionSpec,
            block_size=size,
            num_kv_heads=1,
            head_size=8,
            dtype=torch.float16,
            use_mla=False,
        )
        grammar = SimpleNamespace(
            should_advance=lambda *_: False, accept_tokens=lambda *_: True, grammar_bitmask=None
        )
        self._scheduler: Any = _built(
            Scheduler,
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=grammar,
            block_size=size,
            hash_block_size=size,
            log_stats=True,
        )
        hashing = _hash_function()
        utils.init_none_hash(hashing)
        self._hasher = utils.get_request_block_hasher(size, hashing)
        self.preemptions = self.queried = self.hit = 0

    def add(self, call: Call, prompt: list[int], limit: int, now: float) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        sampling = SamplingParams(max_tokens=limit, ignore_eos=True)
        if hasattr(sampling, "update_from_generation_config"):
            sampling.update_from_generation_config({}, None)
        request = _built(
            Request,
            request_id=str(call.number),
            prompt_token_ids=prompt,
            sampling_params=sampling,
            pooling_params=None,
            eos_token_id=None,
            arrival_time=now,
            block_hasher=self._hasher,
            priority=call.priority,
            client_index=0,
        )
        self._scheduler.add_request(request)

    def give_up(self, number: int) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        self._scheduler.reset_prefix_cache()

    def is_busy(self) -> bool:
        return bool(self._scheduler.requests)

    def counts(self) -> tuple[int, int]:
        running, waiting = self._scheduler.get_request_counts()
        return running, waiting

    def schedule(self) -> tuple[Any, Row]:
        scheduler = self._scheduler
        had = [(request, request.num_preemptions) for request in scheduler.running]
        output = scheduler.schedule()
        self.preemptions += sum(request.num_preemptions - before for request, before in had)
        decodes = context = prefill = chunks = pairs = 0.0
        for name, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            end = request.num_computed_tokens
            if count == 1 and end >= request.num_tokens:
                decodes, context = decodes + 1, context + end
            else:
                prefill, chunks = prefill + count, chunks + 1
                pairs += count * (end - count / 2)
        resumed = getattr(output.scheduled_cached_reqs, "resumed_req_ids", ())
        admitted = len(output.scheduled_new_reqs) + len(resumed)
        return output, [decodes, context / 1e3, prefill, chunks, pairs / 1e6, float(admitted)]

    def finish(
        self, plan: Any, token: Callable[[int, int], int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        from vllm.v1.outputs import ModelRunnerOutput

        scheduler, names = self._scheduler, list(plan.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for name in names:
            request = scheduler.requests.get(name)
            whole = request is not None and request.num_computed_tokens >= request.num_tokens
            sampled.append([token(int(name), request.num_tokens)] if whole else [])
        result = scheduler.update_from_output(
            plan,
            _built(
                ModelRunnerOutput,
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        produced, ended = [], []
        for client in result.values():
            for one in client.outputs:
                produced.append((int(one.request_id), len(one.new_token_ids)))
                if one.finish_reason is not None:
                    ended.append(int(one.request_id))
            stats = getattr(client.scheduler_stats, "prefix_cache_stats", None)
            if stats is not None:
                self.queried += stats.queries
                self.hit += stats.hits
        return produced, ended


def _built(cls: Any, **wanted: Any) -> Any:
    """One of vLLM's objects, with those arguments that this version has."""
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in wanted.items() if name in known})


def _hash_function() -> Any:
    try:
        from vllm.utils.hashing import get_hash_fn_by_name
    except ImportError:
        from vllm.utils import get_hash_fn_by_name
    return get_hash_fn_by_name("sha256")


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever vLLM prints
    os.environ.update(
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        HF_HUB_OFFLINE="1",
        VLLM_PLUGINS="",  # the observer, among others
        VLLM_TARGET_DEVICE="cpu",
        VLLM_CPU_KVCACHE_SPACE="1",
    )
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    calls: list[Call] = []
    with tempfile.TemporaryDirectory(prefix="kvscope-twin-") as folder:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if "calls" in asked:
                    calls = [Call(**call) for call in asked["calls"]]
                    options = list(inspect.signature(EngineArgs).parameters)
                    found: dict[str, Any] = {"answer": [vllm.__version__, options]}
                else:
                    book = VllmBook(asked["options"], Path(folder))
                    found = {"answer": answer(asked, calls, book)}
            except ReplayError as error:
                found = {"error": str(error)}
            except (ValueError, AssertionError) as error:  # vLLM refuses an option's value
                found = {
                    "error": f"vLLM refuses these options: {' '.join(str(error).split())[:300]}"
                }
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
