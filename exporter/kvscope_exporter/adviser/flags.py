"""Formats of numbers in a proposal."""

from typing import get_args

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter import words
from kvscope_exporter.adviser.proposal import Bound, Gain, Option, Price

FLAGS: dict[Option, str] = {
    **{name: f"--{name.replace('_', '-')}" for name in get_args(Option)},
    "swap_space": "--preemption-mode auto --swap-space",
    "hicache_size": "--enable-hierarchical-cache --hicache-size",
    "replicas": "",
}
"""Ours are vLLM's names, so they serve both; only swapping is our own, and offloading and the
watermark vLLM's."""
_SGLANG: dict[Option, Option] = {
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "block_size": "page_size",
    "kv_offloading_size": "hicache_size",
}
SERVERS: frozenset[ServerKind] = frozenset({"kvscope", "vllm", "sglang"})
"""Servers whose options are known."""
SHARES: frozenset[Option] = frozenset({"gpu_memory_utilization", "mem_fraction_static"})
"""Options that give the pool a share of a device's memory."""


def spelled(option: Option, server: ServerKind) -> Option:
    """The same option by that server's name."""
    return _SGLANG.get(option, option) if server == "sglang" else option


_TENTHS: tuple[Option, ...] = ("swap_space", "kv_offloading_size", "schedule_conservativeness")
HOST = "host"
"""Name of a room where steps take no memory beyond what is already counted."""


def change(before: float, after: float) -> str:
    """-80 %; before is not 0."""
    return f"{(after - before) / before:+.0%}".replace("%", " %")


def setting(option: Option, value: float) -> str:
    """The value as it is given to the flag."""
    tenths: dict[Option, int] = dict.fromkeys(_TENTHS, 1)
    hundredths: dict[Option, int] = {"watermark": 2, **dict.fromkeys(SHARES, 2)}
    digits = {**tenths, **hundredths}.get(option, 0)
    return f"{value:.{digits}f}"


def would_save(gain: Gain) -> str:
    """Would save at most 981 prompt tokens a second."""
    return f"would save {_saved(gain)}"


def _saved(gain: Gain) -> str:
    return f"{gain.saved_is} {gain.saved_tokens_per_second:,.0f} prompt tokens a second"


def saved_of(saved: float, computed: float, bound: Bound) -> str:
    """Would save at most 12 of 2,000 prompt tokens a second."""
    number = f"{bound} {saved:,.0f}" if saved >= 0.5 else "0"
    return f"would save {number} of {computed:,.0f} prompt tokens a second"


def sentence(
    option: Option, current: float | None, proposed: float, price: Price, gain: Gain
) -> str:
    """The whole proposal in one line."""
    name = FLAGS[option] or "replicas"
    effects = ", ".join(_effects(price, gain))
    if current is None:  # not set, or unknown: no arrow from an unset value
        return f"set {name} {setting(option, proposed)}: {effects}"
    return f"{name} {setting(option, current)} → {setting(option, proposed)}: {effects}"


def _effects(price: Price, gain: Gain) -> list[str]:
    found = []
    if price.pool_blocks:
        blocks, taken = f"{price.pool_blocks:+,} blocks", price.memory_bytes
        found.append(f"{blocks} ({words.size(taken)})" if taken and taken > 0 else blocks)
    if gain.hit_ratio_from is not None and gain.hit_ratio_to is not None:
        before, after = words.share(gain.hit_ratio_from), words.share(gain.hit_ratio_to)
        same = before == after
        found.append(
            f"hits stay at {after}"
            if same
            else f"hits {before.removesuffix(' %')} → {gain.saved_is} {after}"
        )
    if gain.saved_tokens_per_second >= 1:
        found.append(f"{_saved(gain)} saved")
    again = gain.recomputed_tokens_per_second_from
    if again and gain.recomputed_tokens_per_second_to is not None:
        after = change(again, gain.recomputed_tokens_per_second_to)
        found.append(f"recomputed tokens {gain.saved_is} {after}")
    elif again and not gain.saved_tokens_per_second:
        found.append(f"fewer recomputed tokens ({again:,.0f} a second now)")
    errors = gain.errors_per_second_from
    if errors and gain.errors_per_second_to is not None:
        found.append(f"steps out of memory {change(errors, gain.errors_per_second_to)}")
    if gain.waiting_sequences_from is not None:
        found.append(f"fewer waiting sequences ({gain.waiting_sequences_from:.1f} on average)")
    if gain.freed_bytes is not None:
        found.append(f"{words.size(gain.freed_bytes)} freed")
    if gain.step_bytes_to is not None:
        found.append(f"the largest step takes {words.size(gain.step_bytes_to)}")
    if gain.step_seconds_from is not None and gain.step_seconds_to is not None:
        before, after = words.seconds(gain.step_seconds_from), words.seconds(gain.step_seconds_to)
        found.append(f"full steps take {before} → about {after}")
    if price.headroom_left_bytes is not None:
        left = f"headroom left {words.size(price.headroom_left_bytes)}"
        found.append(left if price.room == HOST else f"{left} above the largest step")
    return found
