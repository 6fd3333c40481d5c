"""Schedulers that are not observed, since their counts are not known to be exact: each reason is
one line."""

from typing import Any

TESTED = ("0.5.17", "0.5.19", "0.5.23")
"""Releases that were compared with SGLang's own counts. Others with known methods are observed as
well: the check of each step ends that if they work differently."""
TREES = ("RadixCache", "ChunkCache", "UnifiedRadixCache")
POOLS = ("TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator")


def refusal(scheduler: Any) -> str | None:
    """The reason why this scheduler cannot be observed; None: it can."""
    args = scheduler.server_args
    tree, pool = scheduler.tree_cache, scheduler.token_to_kv_pool_allocator
    if type(tree).__name__ not in TREES:
        return f"the prefix cache is a {type(tree).__name__}; known are {', '.join(TREES)}"
    if getattr(scheduler, "is_hybrid_swa", False) or getattr(scheduler, "is_hybrid_ssm", False):
        return "the layers of this model keep their pages in several pools"
    if type(pool).__name__ not in POOLS:
        return f"the allocator is a {type(pool).__name__}; known are {', '.join(POOLS)}"
    if not scheduler.spec_algorithm.is_none():
        return "speculative decoding allocates more than it keeps"
    if scheduler.disaggregation_mode.value != "null":
        return "prefill and decode are on different servers"
    for option, what in _REFUSED:
        if getattr(args, option, None) not in _OFF[option]:
            return f"--{option.replace('_', '-')}: {what}"
    return None


_REFUSED = (
    ("pp_size", "several batches are in flight"),
    ("dcp_size", "a sequence's pages are on several GPUs"),
    ("enable_streaming_session", "sessions keep pages between requests"),
    ("dllm_algorithm", "a diffusion model gives pages back while it runs"),
    ("enable_lmcache", "LMCache has a prefix cache of its own"),
)
_OFF: dict[str, tuple[object, ...]] = {
    "pp_size": (None, 1),
    "dcp_size": (None, 0, 1),
    "enable_streaming_session": (None, False),
    "dllm_algorithm": (None,),
    "enable_lmcache": (None, False),
}
