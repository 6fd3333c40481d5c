"""Groups: pools that hold several kinds of KV cache, by kind; absent for pools of one group."""

from typing import get_args

from kvscope_events.vocabulary import GroupKind, ServerKind
from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric
from kvscope_exporter.catalogue.pool import STATE_EVENTS
from kvscope_exporter.state.cache.vetoes import VETO_CAUSES

_VLLM: tuple[ServerKind, ...] = ("vllm",)
"""Its observer reports groups; our own engine has none."""
_BY_KIND: Labels = {**ENGINE, "kind": get_args(GroupKind)}
_LOOKUPS = ("PrefixLookup", "PoolCreated")
_ALONE = (
    "Groups of one kind count as one, which allows what the least of them allows. First admissions "
    "only. Only of pools with several groups of layers."
)

GROUP_METRICS = (
    Metric(
        name="kvscope_kv_group_blocks",
        kind="gauge",
        help="Blocks of a pool with several groups of layers, by kind of the group and state.",
        notes="Blocks whose group is not known are left out: those handed out for no sequence. "
        "Free and reserved blocks belong to no group.",
        unit="blocks",
        within="kvscope_kv_capacity_blocks",
        group="pool",
        labels={**_BY_KIND, "state": ("active", "cached")},
        servers=_VLLM,
        otel_name="kvscope.kv.group.blocks",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_prefix_cache_group_hit_tokens_total",
        kind="counter",
        help="Prompt tokens that one kind of layers alone would have found; hybrid models only.",
        notes=_ALONE,
        unit="tokens",
        group="prefix",
        labels=_BY_KIND,
        servers=_VLLM,
        otel_name="kvscope.prefix_cache.group.hit_tokens",
        events=_LOOKUPS,
    ),
    Metric(
        name="kvscope_prefix_cache_vetoed_tokens_total",
        kind="counter",
        help="Prompt tokens not reused because this kind of layers lacked its part, by reason.",
        notes="The kind that allowed least is the one that vetoed; of several, states before "
        "windows. evicted: a block that it needs there had been evicted. never_kept: it had none "
        "there, which windows and states keep only where a later prompt is expected to resume. "
        "unaligned: it has its part up to the last of its blocks that ends before. unknown: after "
        "lost events. " + _ALONE,
        unit="tokens",
        group="prefix",
        labels={**_BY_KIND, "cause": VETO_CAUSES},
        servers=_VLLM,
        otel_name="kvscope.prefix_cache.vetoed_tokens",
        events=(*_LOOKUPS, "BlocksCached", "BlocksEvicted"),
    ),
)
