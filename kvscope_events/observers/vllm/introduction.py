"""The observer's Hello and PoolCreated, built from the scheduler's configuration."""

import os
import sys
from hashlib import sha256
from typing import Any

import msgspec

from kvscope_events.events import CONTRACT_VERSION, Hello, PoolCreated
from kvscope_events.limits import label_of, numbers_of
from kvscope_events.observers.vllm.offloading import offloading_manager
from kvscope_events.observers.vllm.served import engine_index, served_name, server_version
from kvscope_events.observers.vllm.sizing import (
    alignment,
    bytes_per_block,
    capacity,
    groups_of,
    reserved_blocks,
    retention,
    sized_by,
)
from kvscope_events.pid_space import pid_space
from kvscope_events.producers import (
    LOOKUP_EVENTS,
    OFFLOAD_EVENTS,
    TOKEN_EVENTS,
    VLLM_SCHEDULER_EVENTS,
    in_order,
)

_LIMITS = "max_num_seqs max_num_active_seqs max_num_batched_tokens"
_LIMITS += " long_prefill_token_threshold watermark max_num_scheduled_tokens"
_LIMITS += " long_prefill_token_threshold_adaptive max_num_partial_prefills"
_LIMITS += " max_long_partial_prefills enable_chunked_prefill scheduler_reserve_full_isl"
_LIMITS += " prefill_schedule_interval async_scheduling"


def created_of(scheduler: Any) -> PoolCreated:
    pool = scheduler.kv_cache_manager.block_pool
    config = getattr(scheduler, "kv_cache_config", None)
    # Before 0.12 there is only one block size, so names cover blocks of it.
    block_size = int(getattr(pool, "hash_block_size", None) or scheduler.block_size)
    num_blocks, groups = int(pool.num_gpu_blocks), groups_of(config, block_size)
    manager = scheduler.kv_cache_manager
    coordinator = getattr(manager, "coordinator", None)
    size_tokens, longest_sequences = capacity(scheduler.vllm_config.cache_config)
    return PoolCreated(
        num_blocks,
        block_size,
        bytes_per_block(config, num_blocks),
        reserved_blocks(pool),
        groups=groups,
        size_tokens=size_tokens,
        longest_sequences=longest_sequences,
        alignment=alignment(coordinator, groups, block_size),
        retention=retention(coordinator),
        # With several groups only the drafter's drops it; where hashes look ahead, none does.
        drops_last=len(groups) <= 1 and bool(getattr(manager, "use_eagle", False)),
    )


def identity_of(config: Any, session: str) -> Hello:
    """An engine that runs, and whose pool is not described."""
    return Hello(
        contract=CONTRACT_VERSION,
        session=session,
        server="vllm",
        server_version=server_version(),
        model_name=served_name(config),
        engine=str(engine_index(config)),
        pid=os.getpid(),
        ready=True,
        tells=[],
        requests_are="sequence",
        pid_space=pid_space(),
    )


def hello_of(scheduler: Any, session: str) -> Hello:
    config = scheduler.vllm_config
    model, cache = config.model_config, config.cache_config
    caching = bool(scheduler.kv_cache_manager.enable_caching)
    tells = VLLM_SCHEDULER_EVENTS
    if not caching:
        tells -= LOOKUP_EVENTS
    if getattr(model, "runner_type", "generate") == "pooling":
        tells -= TOKEN_EVENTS
    if offloading_manager(scheduler) is not None:
        tells |= OFFLOAD_EVENTS
    return msgspec.structs.replace(
        identity_of(config, session),
        tells=in_order(tells),
        max_model_len=int(model.max_model_len),
        enable_prefix_caching=caching,
        cache_dtype=_cache_dtype(model, cache),
        gpu_memory_utilization=_share(cache),
        prefix_caching_hash_algo=_label(getattr(cache, "prefix_caching_hash_algo", None))
        if caching
        else None,
        pool_sized_by=sized_by(cache),
        keeps_blocks=getattr(scheduler, "connector", None) is not None,
        settings=numbers_of(config.scheduler_config, _LIMITS.split())
        | numbers_of(getattr(config, "speculative_config", None), ("num_speculative_tokens",)),
        scheduling_policy=_label(getattr(config.scheduler_config, "policy", None)),
    )


def name_space(hello: Hello, created: PoolCreated) -> str | None:
    """Digest of what the names of blocks depend on; None: not known, or not yet.

    vLLM's names do not depend on the model, so that two models have the same names for content that
    has nothing in common.
    """
    root = getattr(sys.modules.get("vllm.v1.core.kv_cache_utils"), "NONE_HASH", None)
    if not isinstance(root, bytes) or hello.prefix_caching_hash_algo is None:
        return None
    facts = (
        hello.model_name,
        str(created.block_size),
        hello.prefix_caching_hash_algo,
        "groups" if len(created.groups) > 1 else "one group",
        root.hex(),
    )
    return sha256("\n".join(facts).encode()).hexdigest()[:32]


def _cache_dtype(model: Any, cache: Any) -> str | None:
    dtype = _label(getattr(cache, "cache_dtype", None))
    if dtype in (None, "auto"):
        dtype = _label(getattr(model, "dtype", None))
    return None if dtype is None else dtype.removeprefix("torch.")


def _share(cache: Any) -> float | None:
    if sized_by(cache) != "gpu_memory_utilization":
        return None
    share = getattr(cache, "gpu_memory_utilization", None)
    return None if share is None else float(share)


def _label(value: Any) -> str | None:
    return None if value is None else label_of(value)
