"""Options that a twin can change: their values checked, and the reasons why others are refused."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kvscope.twin.traffic import Traffic
from kvscope.whatif.findings import WhatIfError

Value = int | float | bool | str
Changes = dict[str, Value]

POOL = "num_gpu_blocks_override"
CACHING = "enable_prefix_caching"
POLICY = "scheduling_policy"
_ALIASES = {"num_gpu_blocks": POOL, "blocks": POOL, "policy": POLICY}
_BOOLEANS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


def _at_least(least: int) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        if (value := int(text)) < least:
            raise ValueError
        return value

    return read


def _boolean(text: str) -> Value:
    if text.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text.lower()]


def _share(text: str) -> Value:
    if not 0 <= (value := float(text)) < 1:
        raise ValueError
    return value


def _policy(text: str) -> Value:
    if text not in ("fcfs", "priority"):
        raise ValueError
    return text


_READ: dict[str, tuple[Callable[[str], Value], str]] = {
    "max_num_seqs": (_at_least(1), "a number from 1 on"),
    "max_num_batched_tokens": (_at_least(1), "a number from 1 on"),
    POOL: (_at_least(2), "a number of blocks from 2 on"),
    CACHING: (_boolean, "true or false"),
    POLICY: (_policy, "fcfs or priority"),
    "enable_chunked_prefill": (_boolean, "true or false"),
    "long_prefill_token_threshold": (_at_least(0), "a number from 0 on"),
    "long_prefill_token_threshold_adaptive": (_boolean, "true or false"),
    "max_num_partial_prefills": (_at_least(1), "a number from 1 on"),
    "max_long_partial_prefills": (_at_least(1), "a number from 1 on"),
    "scheduler_reserve_full_isl": (_boolean, "true or false"),
    "prefill_schedule_interval": (_at_least(1), "a number from 1 on"),
    "watermark": (_share, "a share from 0 to below 1"),
}
"""Options of the scheduler and its pool, with what their values may be."""
_OWN = ("max_num_seqs", "max_num_batched_tokens", POOL, CACHING)
"""Those that our own scheduler knows as well."""

_SIZED = f"give the blocks themselves ({POOL}); kvscope plan computes them"
_STEP = "it changes what a step computes, and the recorded step times would not hold"
_UNPROVEN = "a twin with it is not validated"
_OUTSIDE: dict[str, str] = {
    **dict.fromkeys(("gpu_memory_utilization", "kv_cache_memory_bytes"), _SIZED),
    **dict.fromkeys(
        (
            *("model", "dtype", "quantization", "kv_cache_dtype", "block_size", "enforce_eager"),
            *("attention_backend", "compilation_config", "cudagraph_capture_sizes", "device"),
            *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
            *("enable_expert_parallel", "decode_context_parallel_size", "load_format"),
        ),
        _STEP,
    ),
    **dict.fromkeys(
        (
            *("async_scheduling", "speculative_config", "num_speculative_tokens"),
            *("kv_transfer_config", "kv_offloading_size", "max_model_len", "max_num_active_seqs"),
            *("max_num_scheduled_tokens", "enable_lora", "max_loras"),
        ),
        _UNPROVEN,
    ),
}


@dataclass(frozen=True)
class Setting:
    """One row of the answer: the options that it changes."""

    name: str
    changes: Changes


def parsed(texts: Iterable[str]) -> list[Setting]:
    """Each text is option=value, or several of them with commas. Raises WhatIfError."""
    return [Setting(text, dict(_change(part) for part in text.split(","))) for text in texts]


def _change(text: str) -> tuple[str, Value]:
    given, equals, value = text.partition("=")
    name = given.strip().lstrip("-").replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in _OUTSIDE:
        raise WhatIfError(f"--set {given.strip()}: {_OUTSIDE[name]}")
    if name not in _READ:
        close = get_close_matches(name, _READ, 3, 0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(_READ)}"
        raise WhatIfError(f"--set {given.strip()}: no option that a twin can change: {hint}")
    read, wanted = _READ[name]
    try:
        if not equals:
            raise ValueError
        return name, read(value.strip())
    except ValueError:
        raise WhatIfError(f"--set {text}: {name} takes {wanted}, as in {name}=VALUE") from None


def recorded_options(traffic: Traffic, *, own: bool) -> Changes:
    """The options that the server ran with. own: for our scheduler, not the server's.

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
    for problem, why in (
        (len(pool.groups) > 1, "its pool has several groups of layers, which are not validated"),
        (hello.keeps_blocks, "its calls load blocks through a connector, which is not modelled"),
        (traffic.loaded_tokens, "its calls load blocks from another tier, which is not modelled"),
        (traffic.drafted, "it drafts tokens (speculative decoding), which is not validated"),
        (traffic.unnamed, "its lookups have no names, so that shared content is not known"),
    ):
        if problem:
            raise WhatIfError(f"no twin of this recording: {why}")
    known = hello.settings
    lacks = [name for name in ("max_num_seqs", "max_num_batched_tokens") if name not in known]
    if hello.max_model_len is None:
        lacks.append("max_model_len")
    if lacks:
        raise WhatIfError(
            f"the recording lacks the scheduler's options ({', '.join(lacks)}): it was made by an "
            "older kvscope; record it again with this one on the server's path"
        )
    assert hello.max_model_len is not None
    options: Changes = {
        "max_model_len": hello.max_model_len,
        "block_size": pool.block_size,
        POOL: pool.num_blocks,
        CACHING: hello.enable_prefix_caching is not False,
    }
    for name in _OWN[:2] if own else (*_READ, "async_scheduling"):
        if name in known:
            is_flag = name == "async_scheduling" or _READ[name][0] is _boolean
            is_share = name == "watermark"
            options[name] = known[name] if is_share else (bool if is_flag else int)(known[name])
    if hello.scheduling_policy is not None and not own:
        options[POLICY] = hello.scheduling_policy
    return options


def checked(settings: Iterable[Setting], options: Mapping[str, Any], traffic: Traffic) -> None:
    """Refuse what this recording cannot answer, or the server would not start with.

    Raises WhatIfError.
    """
    for setting in settings:
        new = {**options, **setting.changes}
        tokens = (int(new[POOL]) - (traffic.pool.reserved if traffic.pool else 0)) * int(
            new["block_size"]
        )
        if new[CACHING] and not options[CACHING]:
            raise WhatIfError(
                f"--set {setting.name}: the recorded server had no prefix caching, so what its "
                "prompts share is not in the recording"
            )
        if setting.changes.get(POLICY) == "priority" and traffic.priorities <= {0, None}:
            raise WhatIfError(
                f"--set {setting.name}: the recorded calls have no priorities, so their order "
                "would be the same"
            )
        if tokens < int(new["max_model_len"]):
            raise WhatIfError(
                f"--set {setting.name}: a pool of {tokens:,} tokens cannot hold one sequence of "
                f"max_model_len {new['max_model_len']:,}, so the server would not start"
            )
        if int(new["max_num_batched_tokens"]) < int(new["max_num_seqs"]):
            raise WhatIfError(
                f"--set {setting.name}: max_num_batched_tokens must be at least max_num_seqs "
                f"({new['max_num_seqs']}), or the server does not start"
            )


def beyond_own(settings: Iterable[Setting]) -> None:
    """Raises WhatIfError for options that our own scheduler does not have."""
    for setting in settings:
        for name in setting.changes:
            if name not in _OWN:
                raise WhatIfError(
                    f"--set {setting.name}: only the server's own scheduler has {name}: give its "
                    "Python, --python /path/to/server/bin/python"
                )
