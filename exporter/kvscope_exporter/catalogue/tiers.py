"""Cache tiers: content on the device, in host memory and further away.

For servers that publish KV events, and for an observed vLLM that offloads to host memory. They name
content and know neither free nor active blocks, so these families cover only blocks that can be
found by their content.
"""

from typing import get_args

from kvscope_events.vocabulary import Tier, TransferDirection
from kvscope_exporter.catalogue.metric import ENGINE, Kind, Labels, Metric

_BY_TIER: Labels = {**ENGINE, "tier": get_args(Tier)}
_EVENTS = ("NamesStored", "NamesRemoved", "NamesCleared")
_FULL = ("blocks", "removed_blocks_total", "unused_removed_blocks_total")


def _row(
    name: str,
    kind: Kind,
    help: str,
    *,
    unit: str = "blocks",
    notes: str = "",
    labels: Labels | None = None,
    events: tuple[str, ...] = _EVENTS,
) -> Metric:
    return Metric(
        name=f"kvscope_kv_tier_{name}",
        kind=kind,
        help=help,
        notes=notes,
        unit=unit,
        group="tiers",
        detail="full" if name in _FULL else "lean",
        labels={**_BY_TIER, **(labels or {})},
        otel_name=f"kvscope.kv.tier.{name.removesuffix('_total')}",
        events=events,
    )


TIERS = (
    _row(
        "blocks",
        "gauge",
        "KV blocks that can be found by content, by tier.",
        notes="device is the device's pool, host this host's memory, disk its disks, remote "
        "elsewhere, other a medium that kvscope does not know. A tier is shown once the server has "
        "named it. Blocks of different tiers may differ in size. For a tier that announces no "
        "removals (vLLM's storage tiers) this is all that it ever stored: an upper bound.",
    ),
    _row(
        "stored_blocks_total",
        "counter",
        "Blocks that became findable, by tier.",
    ),
    _row(
        "removed_blocks_total",
        "counter",
        "KV blocks that left a tier: evicted, replaced or removed on request.",
        notes="These servers give no reason.",
    ),
    _row(
        "returned_blocks_total",
        "counter",
        "KV blocks stored again after a tier had removed them.",
        notes="Among the tier's last million removals at least. An upper bound of what removals "
        "made the server compute again; under 1 % of new content is counted by mistake.",
    ),
    _row(
        "unused_removed_blocks_total",
        "counter",
        "KV blocks removed from a tier that no lookup had found: copied for nothing.",
        notes="Together with kvscope_kv_tier_removed_blocks_total: near all of them is thrash.",
        events=(*_EVENTS, "PrefixLookup"),
    ),
    _row(
        "transferred_bytes_total",
        "counter",
        "KV bytes copied between the device and a tier, by direction.",
        unit="bytes",
        labels={"direction": get_args(TransferDirection)},
        events=("TierTransferred",),
    ),
)
