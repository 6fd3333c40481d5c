"""Options that a twin can change: their values checked, and the reasons why others are refused."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from kvscope.twin.traffic import Traffic
from kvscope.whatif.findings import WhatIfError

Changes = dict[str, Any]

POOL = "num_gpu_blocks_override"
CACHING = "enable_prefix_caching"
POLICY = "scheduling_policy"
_ALIASES = {"num_gpu_blocks": POOL, "blocks": POOL, "policy": POLICY}


class _Kind(NamedTuple):
    """A kind of value: how it is read, which are accepted, and both in words."""

    read: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    words: str


def _from(least: int, what: str = "a number") -> _Kind:
    return _Kind(int, lambda value: bool(value >= least), f"{what} from {least} on")


_SWITCH = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
_BOOLEAN = _Kind(
    lambda text: _SWITCH.get(str(text).lower()), lambda flag: flag is not None, "true or false"
)
_SHARE = _Kind(float, lambda share: 0 <= share < 1, "a share from 0 to below 1")
_KINDS = {
    "max_num_seqs": _from(1),
    "max_num_batched_tokens": _from(1),
    POOL: _from(2, "a number of blocks"),
    CACHING: _BOOLEAN,
    POLICY: _Kind(str, ("fcfs", "priority").__contains__, "fcfs or priority"),
    "enable_chunked_prefill": _BOOLEAN,
    "long_prefill_token_threshold": _from(0),
    "long_prefill_token_threshold_adaptive": _BOOLEAN,
    "max_num_partial_prefills": _from(1),
    "max_long_partial_prefills": _from(1),
    "scheduler_reserve_full_isl": _BOOLEAN,
    "prefill_schedule_interval": _from(1),
    "watermark": _SHARE,
}
"""Options of the scheduler and its pool."""

_OUTSIDE = {
    f"give the blocks themselves ({POOL}); kvscope plan computes them": (
        "gpu_memory_utilization kv_cache_memory_bytes"
    ),
    "it changes what a step computes, and the recorded step times would not hold": (
        "model dtype quantization kv_cache_dtype block_size enforce_eager attention_backend "
        "compilation_config cudagraph_capture_sizes device tensor_parallel_size "
        "pipeline_parallel_size data_parallel_size enable_expert_parallel "
        "decode_context_parallel_size load_format"
    ),
    "a twin with it is not validated": (
        "async_scheduling speculative_config num_speculative_tokens kv_transfer_config "
        "kv_offloading_size max_model_len max_num_active_seqs max_num_scheduled_tokens "
        "enable_lora max_loras"
    ),
}
"""Options that are refused, by the reason."""


class Setting(NamedTuple):
    """One column of the answer: the options that it changes."""

    name: str
    changes: Changes


def parsed(texts: Iterable[str]) -> list[Setting]:
    """Each text is option=value, or several of them with commas. Raises WhatIfError."""
    return [Setting(text, dict(_change(part) for part in text.split(","))) for text in texts]


def _change(text: str) -> tuple[str, Any]:
    given, _, value = text.partition("=")
    name = given.strip().lstrip("-").replace("-", "_")
    name = _ALIASES.get(name, name)
    for reason, names in _OUTSIDE.items():
        if name in names.split():
            raise WhatIfError(f"--set {given.strip()}: {reason}")
    if name not in _KINDS:
        close = get_close_matches(name, _KINDS, 3, 0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(_KINDS)}"
        raise WhatIfError(f"--set {given.strip()}: no option that a twin can change: {hint}")
    kind = _KINDS[name]
    try:
        if not kind.accepts(read := kind.read(value.strip())):
            raise ValueError
    except ValueError:
        raise WhatIfError(f"--set {text}: {name} takes {kind.words}, as in {name}=VALUE") from None
    return name, read


def recorded_options(traffic: Traffic) -> Changes:
    """The options that the server ran with.

    Raises WhatIfError: a twin of this recording cannot be made, and what it lacks.
    """
    hello, pool = traffic.hello, traffic.pool
    if hello is None or pool is None:
        if traffic.is_counted:
            raise WhatIfError(
                "a twin schedules blocks, and this server only counts its pages: SGLang's own "
                "scheduler is not driven yet; leave out --set for the curve of sizes"
            )
        raise WhatIfError(
            "the recording lacks the engine's introduction and its pool: record it again"
        )
    if hello.server not in ("vllm", "kvscope"):
        raise WhatIfError(f"a twin is of vLLM or of kvscope's engine, not of {hello.server}")
    known, counts = hello.settings, traffic.counts
    for problem, why in (
        (len(pool.groups) > 1, "its pool has several groups of layers, which are not validated"),
        (hello.keeps_blocks, "its calls load blocks through a connector, which is not modelled"),
        (counts["loaded"], "its calls load blocks from another tier, which is not modelled"),
        (counts["drafted"], "it drafts tokens (speculative decoding), which is not validated"),
        (counts["unnamed"], "its lookups have no names, so that shared content is not known"),
        (
            known.get("async_scheduling"),
            "its scheduler works a step ahead, which is not validated: record the server with "
            "--no-async-scheduling",
        ),
    ):
        if problem:
            raise WhatIfError(f"no twin of this recording: {why}")
    lacks = [name for name in ("max_num_seqs", "max_num_batched_tokens") if name not in known]
    if hello.max_model_len is None:
        lacks.append("max_model_len")
    if lacks:
        raise WhatIfError(
            f"the recording lacks the scheduler's options ({', '.join(lacks)}): it was made by an "
            "older kvscope; record it again with this one on the server's path"
        )
    options: Changes = {
        "max_model_len": hello.max_model_len,
        "block_size": pool.block_size,
        POOL: pool.num_blocks,
        CACHING: hello.enable_prefix_caching is not False,
    }
    for name, kind in _KINDS.items():
        if name in known:
            is_flag = kind is _BOOLEAN
            options[name] = bool(known[name]) if is_flag else kind.read(known[name])
    if hello.scheduling_policy is not None:
        options[POLICY] = hello.scheduling_policy
    return options


def check(settings: Iterable[Setting], options: Changes, traffic: Traffic) -> None:
    """Refuse what this recording cannot answer, or the server would not start with.

    Raises WhatIfError.
    """
    assert traffic.pool is not None
    for name, changes in settings:
        new = options | changes
        tokens = (new[POOL] - traffic.pool.reserved) * new["block_size"]
        longest, sequences = new["max_model_len"], new["max_num_seqs"]
        for problem, why in (
            (
                new[CACHING] and not options[CACHING],
                "the recorded server had no prefix caching, so what its prompts share is not in "
                "the recording",
            ),
            (
                changes.get(POLICY) == "priority" and traffic.priorities <= {0, None},
                "the recorded calls have no priorities, so their order would be the same",
            ),
            (
                tokens < longest,
                f"a pool of {tokens:,} tokens cannot hold one sequence of max_model_len "
                f"{longest:,}, so the server would not start",
            ),
            (
                new["max_num_batched_tokens"] < sequences,
                f"max_num_batched_tokens must be at least max_num_seqs ({sequences}), or the "
                "server does not start",
            ),
        ):
            if problem:
                raise WhatIfError(f"--set {name}: {why}")
