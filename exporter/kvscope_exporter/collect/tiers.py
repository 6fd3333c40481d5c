"""Content of a cache's tiers, and what came and went; the content only while it is known."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state.tiers import TierContent, Tiers


def collect_tiers(families: Families, fold: Tiers, engine: Hello) -> Iterator[Family]:
    tiers: dict[str, TierContent] = dict(fold.tiers.items())
    if "PoolCreated" in engine.tells:  # its pool is the device's tier, and is shown as the pool
        del tiers["device"]
    known = {name: tier for name, tier in tiers.items() if tier.known}
    if known:
        yield families.column(
            "kvscope_kv_tier_blocks", {name: tier.num_blocks for name, tier in known.items()}
        )
    for family, values in (
        ("stored", {name: tier.stored for name, tier in tiers.items()}),
        ("removed", {name: tier.removed for name, tier in tiers.items()}),
    ):
        yield families.column(f"kvscope_kv_tier_{family}_blocks_total", values)
    yield families.column("kvscope_kv_tier_hit_tokens_total", dict(fold.hit_tokens.items()))
    yield families.column("kvscope_kv_tier_queried_tokens_total", dict(fold.queried_tokens.items()))
    yield families.column(
        "kvscope_kv_tier_used_ratio",
        {
            name: min(1.0, known[name].num_blocks / tier.num_blocks)
            for name, tier in fold.capacities.items()
            if tier.num_blocks and name in known
        },
    )
