"""A vLLM's real scheduler, manager and pool without a model, and random requests for it."""

import hashlib
import inspect
import random
import time
from collections import deque
from typing import Any
from unittest.mock import MagicMock

from tests.vllm.between_versions import (
    build,
    hash_function,
    stand_in,
    unwrapped,
    version_of_vllm,
)

BLOCK_SIZE = 16
STATE_BLOCK_SIZE = 64
MAX_MODEL_LEN = 512
MAX_LIVE = 14
VOCABULARY = 200
NUM_DRAFTS = 2
DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": NUM_DRAFTS,
    "prompt_lookup_max": 2,
    "prompt_lookup_min": 1,
}


class Driver:
    """A scheduler, and random requests for it."""

    def __init__(
        self,
        mode: str,
        model: str,
        blocks: int,
        seed: int,
        max_seqs: int = 8,
        retention: int | None = None,
        **further: Any,
    ) -> None:
        """retention: of blocks of windows and states. further: arguments of vLLM's engine, beside
        or instead of ours."""
        stand_in()
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1 import kv_cache_interface as layers
        from vllm.v1.core import kv_cache_utils as utils
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler

        words = set(mode.split("-"))
        self.words = words
        self.random = random.Random(seed)
        self.is_async = "async" in words
        self.depth = 2 if self.is_async else 1
        arguments: dict[str, Any] = {
            "model": model,
            "max_model_len": MAX_MODEL_LEN,
            "block_size": BLOCK_SIZE,
            "max_num_seqs": max_seqs,
            "max_num_batched_tokens": 128 if max_seqs == 8 else 4096,
            "enforce_eager": True,
            "num_gpu_blocks_override": blocks,
            "enable_prefix_caching": "nocache" not in words,
            "enable_chunked_prefill": True,
            "scheduling_policy": "priority" if "prio" in words else "fcfs",
            "speculative_config": DRAFTS if words & {"spec", "eagle"} else None,
        }
        config = build(EngineArgs, **arguments | further).create_engine_config()
        if "eagle" in words:  # a scheduler asks for no more of a drafter than its name
            config.speculative_config.method = "eagle"
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.block_size = BLOCK_SIZE
        config.scheduler_config.async_scheduling = self.is_async
        shape = {
            "block_size": BLOCK_SIZE,
            "num_kv_heads": 1,
            "head_size": 8,
            "dtype": torch.float16,
            "use_mla": False,
        }
        full = build(layers.FullAttentionSpec, **shape)
        window = build(layers.SlidingWindowSpec, sliding_window=64, **shape)
        specs = [full]
        if "hybrid" in words:
            specs = [full, window, window]
        elif "swa" in words:
            specs = [window]
        elif "gemma" in words:
            specs = [window, window, full]
        elif "gptoss" in words:
            specs = [window, full]
        elif "circular" in words:
            specs = [full, build(layers.CircularBufferSpec, **shape)]
        elif "rswa" in words:
            specs = [build(layers.RSWASpec, rswa_window=64, **shape)]
        elif "encoder" in words:
            specs = [full, build(layers.CrossAttentionSpec, **shape)]
        elif "hisparse" in words:
            pages = {"block_size": BLOCK_SIZE, "page_size": full.page_size_bytes}
            specs = [full, layers.HiSparseResidentSpec(**pages)]
        elif words & {"partial", "align", "all"}:
            mode = "all" if "all" in words else "align"
            size = STATE_BLOCK_SIZE if "partial" in words else BLOCK_SIZE
            state = build(
                layers.MambaSpec,
                shapes=((8, 8),),
                dtypes=(torch.float16,),
                block_size=size,
                mamba_cache_mode=mode,
            )
            specs = [full, state] if "partial" in words else [state, full]
            config.cache_config.mamba_cache_mode = mode
            config.cache_config.mamba_block_size = size
        groups = [layers.KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
        if "hisparse" in words:
            groups[0].role = layers.KVCacheGroupRole.HISPARSE_SOURCE
        cache = build(
            layers.KVCacheConfig,
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=retention,
        )
        self.grammar = grammar = MagicMock()
        grammar.should_advance.return_value = False
        grammar.accept_tokens.return_value = True
        grammar.grammar_bitmask.return_value = None
        self.scheduler: Any = build(
            unwrapped(AsyncScheduler if self.is_async else Scheduler, Scheduler),
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=grammar,
            block_size=STATE_BLOCK_SIZE if "partial" in words else BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            log_stats=True,
        )
        self.deferred = "deferred" in words and hasattr(self.scheduler, "defer_block_free")
        if self.deferred:
            self.scheduler.defer_block_free = True
        self.spec = bool(words & {"spec", "eagle"})
        hashes = hash_function()
        utils.init_none_hash(hashes)
        # From 0.33 on, names cover the tokens that such a drafter reads behind their block.
        behind = getattr(config, "num_hash_lookahead_tokens", 0)
        self.hasher = utils.get_request_block_hasher(
            BLOCK_SIZE, hashes, *([behind] if behind else [])
        )
        self.prefixes = [self.tokens(self.random.choice([32, 64, 100, 160])) for _ in range(5)]
        self.queue: deque[Any] = deque()
        self.requests = self.aborts = self.resets = self.forced = 0
        self.served = {"queries": 0, "hits": 0}
        """vLLM's own counts."""
        self.decisions = hashlib.sha256()
        """Hash of everything scheduled: equal for two runs with the same decisions."""

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]

    def add(
        self,
        prompt: list[int] | None = None,
        max_tokens: int = 0,
        lora_request: Any = None,
        **sampling: Any,
    ) -> None:
        """A new request, with one of the prefixes."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        parameters = SamplingParams(
            max_tokens=max_tokens or self.random.choice([1, 5, 30, 120]),
            ignore_eos=True,
            **sampling,
        )
        if hasattr(parameters, "update_from_generation_config"):
            parameters.update_from_generation_config({}, None)
        if prompt is None:
            tail = self.tokens(self.random.randrange(1, 90))
            prompt = self.random.choice(self.prefixes) + tail
        request = build(
            Request,
            request_id=f"r{self.requests}",
            prompt_token_ids=prompt,
            sampling_params=parameters,
            pooling_params=None,
            eos_token_id=None,
            arrival_time=time.time(),
            block_hasher=self.hasher,
            priority=self.random.randrange(3) if "prio" in self.words else 0,
            mm_features=None,
            client_index=0,
            lora_request=lora_request,
        )
        self.requests += 1
        self.scheduler.add_request(request)

    def load(self) -> None:
        """Clients come at random."""
        while len(self.scheduler.requests) < MAX_LIVE and self.random.random() < 0.5:
            self.add()
        if not self.scheduler.has_requests():
            self.add()

    def step(self) -> None:
        """Schedule one batch; when enough are in flight, give the oldest its output."""
        scheduler = self.scheduler
        if self.spec and not self.is_async:  # an async scheduler has its own place-holders
            for request in scheduler.running:
                if request.num_computed_tokens >= request.num_prompt_tokens:
                    request.spec_token_ids = self.tokens(NUM_DRAFTS)
        output = scheduler.schedule()
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        self.decisions.update(f"{output.num_scheduled_tokens} {free};".encode())
        self.queue.append((output, self.samples(output)))
        if len(self.queue) >= self.depth or not scheduler.running:
            if self.random.random() < 0.04:
                self.abort()
            self.finish_step()

    def samples(self, output: Any) -> set[str]:
        """Requests that get a token from this batch; to be asked before the next one."""
        sampled = set()
        for request_id in output.num_scheduled_tokens:
            request = self.scheduler.requests[request_id]
            ahead = request.num_output_placeholders if self.is_async else 0
            if request.num_computed_tokens >= request.num_tokens + max(0, ahead - 1):
                sampled.add(request_id)
        return sampled

    def output_of(self, output: Any, sampled: set[str]) -> Any:
        """A model's output for this batch."""
        from vllm.v1.outputs import ModelRunnerOutput

        ids = list(output.num_scheduled_tokens)
        tokens: list[Any] = [self._sampled(output, i) if i in sampled else [] for i in ids]
        if version_of_vllm() < (0, 12):
            import numpy

            tokens = [numpy.array(one) for one in tokens]
        return build(
            ModelRunnerOutput,
            req_ids=ids,
            req_id_to_index={request_id: n for n, request_id in enumerate(ids)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            num_nans_in_logits=None,
        )

    def finish_step(self) -> None:
        output, sampled = self.queue.popleft()
        result = self.scheduler.update_from_output(output, self.output_of(output, sampled))
        for client in result.values():
            stats = getattr(client.scheduler_stats, "prefix_cache_stats", None)
            if stats is not None:
                self.served["queries"] += stats.queries + getattr(stats, "preempted_queries", 0)
                self.served["hits"] += stats.hits + getattr(stats, "preempted_hits", 0)

    def _sampled(self, output: Any, request_id: str) -> list[int]:
        drafts = output.scheduled_spec_decode_tokens.get(request_id, ())
        return self.tokens(1 + (self.random.randrange(len(drafts) + 1) if drafts else 0))

    def abort(self, *, everything: bool = False) -> None:
        from vllm.v1.request import RequestStatus

        live = list(self.scheduler.requests)
        if live:
            ids: Any = live if everything else self.random.choice(live)
            self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
            self.aborts += 1

    def disturb(self) -> None:
        """Now and then a client goes away, or the cache is reset."""
        if self.random.random() < 0.02:
            self.abort()
        if self.random.random() < 0.01:
            self.resets += bool(self.scheduler.reset_prefix_cache())
        if "force" in self.words and self.random.random() < 0.02:
            parameters = inspect.signature(self.scheduler.reset_prefix_cache).parameters
            if "reset_running_requests" in parameters:
                try:
                    self.scheduler.reset_prefix_cache(reset_running_requests=True)
                    self.forced += 1
                except RuntimeError:  # blocks that wait for steps in flight
                    self.resets += 0

    def drain(self) -> None:
        while self.queue:
            self.finish_step()
        self.abort(everything=True)
        self.resets += bool(self.scheduler.reset_prefix_cache())
