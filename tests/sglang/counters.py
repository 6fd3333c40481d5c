"""Sums on SGLang's own page, and the same ones on the page that is made from events alone."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.sglang.server import PAGE


class Series(NamedTuple):
    """Samples of one name with this label, summed over all others."""

    name: str
    label: str = ""
    value: str = ""
    times: int = 1


class Pair(NamedTuple):
    """Two sums that are the same number."""

    ours: tuple[Series, ...]
    theirs: tuple[Series, ...]


def _phase(name: str, phase: str) -> Series:
    return Series(f"kvscope_{name}", "phase", phase)


def _prefilled(mode: str, times: int = 1) -> Series:
    return Series("sglang:prefill_effective_tokens_total", "mode", mode, times)


def _computed(mode: str, times: int = 1) -> Series:
    return Series("sglang:realtime_tokens_total", "mode", mode, times)


def _blocks(state: str) -> Series:
    return Series("kvscope_kv_blocks", "state", state, PAGE)


_HITS = "prefix_cache_hit_tokens_total"
PAIRS = {
    "prompt": Pair(
        (_phase("prefix_cache_queried_tokens_total", "first"),),
        (Series("sglang:prompt_tokens_total"),),
    ),
    "generated": Pair(
        (Series("vllm:generation_tokens_total"),), (Series("sglang:generation_tokens_total"),)
    ),
    "looked up": Pair(
        (_phase("prefix_cache_queried_tokens_total", "first"),),
        (_prefilled("input"), _prefilled("device_hit"), _prefilled("host_hit")),
    ),
    "hit": Pair((_phase(_HITS, "first"),), (_prefilled("device_hit"),)),
    "hit, by the front end": Pair(
        (_phase(_HITS, "first"),), (Series("sglang:cached_tokens_total"),)
    ),
    "hit, again after a retraction as well": Pair(
        (_phase(_HITS, "first"), _phase(_HITS, "resumed")), (_computed("prefill_cache"),)
    ),
    "computed in prefill": Pair(
        (_phase("step_tokens_total", "prefill"),), (_computed("prefill_compute"),)
    ),
    "computed in decode": Pair((_phase("step_tokens_total", "decode"),), (_computed("decode"),)),
    "computed again": Pair(
        (Series("kvscope_preemption_recomputed_tokens_total"),),
        (_computed("prefill_compute"), _prefilled("input", -1)),
    ),
    "evicted": Pair(
        (Series("kvscope_kv_block_evictions_total", "cause", "capacity", PAGE),),
        (Series("sglang:evicted_tokens_total"),),
    ),
    "retractions": Pair(
        (Series("kvscope_preemptions_total", "cause", "out_of_blocks"),),
        (Series("sglang:num_retracted_requests_total"),),
    ),
    "given up by retractions": Pair(
        (Series("kvscope_preemption_discarded_tokens_total", "cause", "out_of_blocks"),),
        (
            Series("sglang:num_retracted_input_tokens_total"),
            Series("sglang:num_retracted_output_tokens_total"),
        ),
    ),
    "requests": Pair(
        (Series("kvscope_requests_finished_total"),), (Series("sglang:num_requests_total"),)
    ),
    "aborted": Pair(
        (Series("kvscope_requests_finished_total", "reason", "abort"),),
        (Series("sglang:num_aborted_requests_total"),),
    ),
    "admitted": Pair(
        (Series("kvscope_request_queue_seconds_count"),),
        (Series("sglang:queue_time_seconds_count"),),
    ),
    "steps": Pair(
        (Series("kvscope_step_duration_seconds_count"),),
        (
            Series("sglang:cuda_graph_passes_total", "mode", "prefill_none"),
            Series("sglang:cuda_graph_passes_total", "mode", "decode_none"),
        ),
    ),
    "pool": Pair(
        (Series("kvscope_kv_capacity_blocks", times=PAGE),),
        (Series("sglang:max_total_num_tokens"),),
    ),
    "free": Pair((_blocks("free"),), (Series("sglang:kv_available_tokens"),)),
    "evictable": Pair((_blocks("cached"),), (Series("sglang:kv_evictable_tokens"),)),
    "used": Pair((_blocks("active"),), (Series("sglang:kv_used_tokens"),)),
    "running": Pair(
        (Series("kvscope_requests", "state", "running"),), (Series("sglang:num_running_reqs"),)
    ),
    "waiting": Pair(
        (Series("kvscope_requests", "state", "waiting"),), (Series("sglang:num_queue_reqs"),)
    ),
}


GAUGES = ("pool", "free", "evictable", "used", "running", "waiting")
"""The sums that a reader shares although it came late."""


def disagreements(
    ours: str,
    theirs: str,
    *,
    only: Iterable[str] = PAIRS,
    without: Collection[str] = (),
    since: tuple[str, str] | None = None,
) -> list[str]:
    """The sums of two pages of an idle SGLang that are not the same.

    since: both pages of an earlier moment; of all but gauges the increase is compared.
    """
    own, other = _samples(ours), _samples(theirs)
    before = (_samples(since[0]), _samples(since[1])) if since is not None else None
    found = []
    for what in only:
        pair = PAIRS[what]
        values = _sum(own, pair.ours), _sum(other, pair.theirs)
        if before is not None and what not in GAUGES:
            first = _sum(before[0], pair.ours), _sum(before[1], pair.theirs)
            values = values[0] - first[0], values[1] - first[1]
        if what not in without and values[0] != values[1]:
            found.append(f"{what}: {values[0]:g}, SGLang says {values[1]:g}")
    return found


_Samples = dict[str, list[tuple[dict[str, str], float]]]


def both(what: str, ours: str, theirs: str) -> tuple[float, float]:
    """Our value and SGLang's."""
    pair = PAIRS[what]
    return _sum(_samples(ours), pair.ours), _sum(_samples(theirs), pair.theirs)


def _samples(page: str) -> _Samples:
    samples: _Samples = {}
    for family in text_string_to_metric_families(page):
        for one in family.samples:
            samples.setdefault(one.name, []).append((one.labels, one.value))
    return samples


def _sum(samples: _Samples, terms: tuple[Series, ...]) -> float:
    """A counter that has counted nothing may not be on SGLang's page yet; ours are all there."""
    total = 0.0
    for term in terms:
        found = samples.get(term.name, [])
        assert found or term.name.startswith("sglang:"), f"{term.name} is not on our page"
        total += term.times * sum(
            value for labels, value in found if not term.label or labels[term.label] == term.value
        )
    return total
