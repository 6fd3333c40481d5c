"""The observer's Hello, PoolCreated and TierCreated, built from the scheduler's configuration; and
PoolCounted, the pool's state."""

import os
import sys
from hashlib import sha256
from typing import Any

import msgspec

from kvscope_events.events import CONTRACT_VERSION, Hello, PoolCounted, PoolCreated, TierCreated
from kvscope_events.limits import label_of, numbers_of
from kvscope_events.observers.sglang.pages import Pages
from kvscope_events.pid_space import pid_space
from kvscope_events.producers import (
    CONTENT_EVENTS,
    LOAD_EVENTS,
    LOOKUP_EVENTS,
    OFFLOAD_EVENTS,
    SGLANG_SCHEDULER_EVENTS,
    TOKEN_EVENTS,
    in_order,
)

HASH_ALGORITHM = "sha256 chain, 8 bytes"
_LIMITS = ("max_running_requests", "max_prefill_tokens", "chunked_prefill_size")


def created_of(scheduler: Any) -> PoolCreated:
    pool = scheduler.token_to_kv_pool_allocator
    page = int(pool.page_size)
    num_pages = int(pool.size) // page
    return PoolCreated(
        num_pages, page, _bytes_per_page(pool, num_pages), size_tokens=num_pages * page
    )


def counted_of(created: PoolCreated, pages: Pages, largest_step: int) -> PoolCounted:
    return PoolCounted(
        created.num_blocks,
        created.block_size,
        created.bytes_per_block,
        created.reserved,
        pages.private,
        pages.protected,
        pages.evictable,
        pages.references if pages.knows_references else None,
        largest_step,
        created.size_tokens,
        created.longest_sequences,
    )


def tier_of(scheduler: Any) -> TierCreated | None:
    """The host's tier; None: no tier, or one of unknown size."""
    controller = getattr(scheduler.tree_cache, "cache_controller", None)
    host = getattr(controller, "mem_pool_host", None)
    page = int(scheduler.token_to_kv_pool_allocator.page_size)
    size, per_token = getattr(host, "size", None), getattr(host, "size_per_token", None)
    if not isinstance(size, int) or not isinstance(per_token, int):
        return None
    return TierCreated("host", size // page, page, per_token * page)


def served_name(args: Any) -> str:
    """The name under which the model is served."""
    return label_of(getattr(args, "served_model_name", None) or args.model_path)


def identity_of(args: Any, session: str, rank: int) -> Hello:
    """An engine that runs, and whose pool is not described."""
    return Hello(
        contract=CONTRACT_VERSION,
        session=session,
        server="sglang",
        server_version=version(),
        model_name=served_name(args),
        engine=str(rank),
        pid=os.getpid(),
        ready=True,
        tells=[],
        requests_are="sequence",
        pid_space=pid_space(),
    )


def hello_of(scheduler: Any, session: str, rank: int, *, names: bool, tier: bool) -> Hello:
    args = scheduler.server_args
    caching = not bool(getattr(args, "disable_radix_cache", False))
    tells = SGLANG_SCHEDULER_EVENTS
    if names:
        tells |= CONTENT_EVENTS
    if tier:
        tells |= LOAD_EVENTS | {"TierCreated"}
        if names:  # a tier's content is known by its names alone
            tells |= OFFLOAD_EVENTS
    if not caching:
        tells -= LOOKUP_EVENTS
    if not getattr(scheduler, "is_generation", True):
        tells -= TOKEN_EVENTS
    page = int(scheduler.token_to_kv_pool_allocator.page_size)
    sized_by = "max_total_tokens" if args.max_total_tokens else "mem_fraction_static"
    share = getattr(args, "mem_fraction_static", None)
    return msgspec.structs.replace(
        identity_of(args, session, rank),
        tells=in_order(tells),
        max_model_len=_positive(getattr(scheduler.model_config, "context_len", None)),
        enable_prefix_caching=caching,
        cache_dtype=_dtype(scheduler),
        gpu_memory_utilization=share if sized_by == "mem_fraction_static" else None,
        prefix_caching_hash_algo=HASH_ALGORITHM if names else None,
        pool_sized_by=sized_by,
        name_space=_name_space(served_name(args), page) if names else None,
        keeps_blocks=False,
        settings=settings_of(scheduler),
        pool_device=_pool_device(scheduler),
        eviction_policy=getattr(args, "radix_eviction_policy", None) if caching else None,
    )


def settings_of(scheduler: Any) -> dict[str, float]:
    """The numbers that decide how large its pool is and whom it admits; unknown ones are left out.

    `pre_model_load_memory`: GiB that were free before the model was loaded. SGLang leaves the share
    of them that --mem-fraction-static does not name.
    """
    runner = getattr(getattr(scheduler, "tp_worker", None), "model_runner", None)
    return {
        **numbers_of(scheduler.server_args, ("mem_fraction_static", "schedule_conservativeness")),
        **numbers_of(scheduler, _LIMITS),
        **numbers_of(runner, ("pre_model_load_memory",)),
    }


def _pool_device(scheduler: Any) -> str | None:
    device = getattr(scheduler.token_to_kv_pool_allocator, "device", None)
    return None if device is None else str(device).partition(":")[0][:64]


def version() -> str:
    """SGLang's version; it is loaded by now."""
    return label_of(getattr(sys.modules.get("sglang"), "__version__", "unknown"))


def _name_space(model: str, page: int) -> str:
    """SGLang's names have no seed: those of all its processes with one model may be compared."""
    facts = ("sglang", model, str(page), HASH_ALGORITHM)
    return sha256("\n".join(facts).encode()).hexdigest()[:32]


def _bytes_per_page(pool: Any, num_pages: int) -> int:
    """K and V of all layers, from the pool's own sum; 0: not known."""
    size = pool.get_kvcache().get_kv_size_bytes()
    total = sum(size) if isinstance(size, tuple) else size
    # The tensors have one page more, which is never handed out.
    return int(total) // (num_pages + 1)


def _dtype(scheduler: Any) -> str | None:
    dtype = getattr(scheduler.token_to_kv_pool_allocator.get_kvcache(), "dtype", None)
    return None if dtype is None else label_of(str(dtype).removeprefix("torch."))


def _positive(value: Any) -> int | None:
    return int(value) if value else None
