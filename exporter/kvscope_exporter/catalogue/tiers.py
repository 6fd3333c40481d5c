"""Cache tiers: content on the device, in host memory and further away.

For servers that publish KV events, and for an observed vLLM that offloads to host memory. They name
content and know neither free nor active blocks, so these families cover only blocks that can be
found by their content.
"""

from typing import get_args

from kvscope_events.vocabulary import Tier
from kvscope_exporter.catalogue.metric import ENGINE, Kind, Labels, Metric

_BY_TIER: Labels = {**ENGINE, "tier": get_args(Tier)}
_EVENTS = ("NamesStored", "NamesRemoved", "NamesCleared")


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
        detail="full" if name in ("blocks", "removed_blocks_total") else "lean",
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
)
