"""KV pool: how long do blocks stay, and are they needed again?"""

from dashboards.kit.frame import Row
from dashboards.kit.panels import heat
from dashboards.kit.queries import buckets

_NOT_NUMBERED = "No block was evicted or reused, or the server does not number them (SGLang)."


def row() -> Row:
    return Row(
        900,
        "How long do blocks stay?",
        [
            heat(
                901,
                "Lifetime",
                "From entering the prefix cache to eviction, for every evicted block; blocks "
                "still there are not included (`/api/residency` has their ages). Seconds: content "
                "comes and goes, and the cache is little more than a queue.",
                buckets("kvscope_kv_block_lifetime_seconds"),
                span=8,
                when_absent=_NOT_NUMBERED,
            ),
            heat(
                902,
                "Idle before eviction",
                "From a block's last reference to its eviction: a prompt that comes back later "
                "finds nothing. Shorter than the pauses of your users' conversations: the cache "
                "is too small for them.",
                buckets("kvscope_kv_block_idle_before_eviction_seconds"),
                span=8,
                when_absent=_NOT_NUMBERED,
            ),
            heat(
                903,
                "Reuse gap",
                "From a block's last reference to the prefix hit that reused it. Bright cells as "
                "high as on the left: blocks are found just before they would be evicted, and a "
                "smaller pool would lose those hits.",
                buckets("kvscope_kv_block_reuse_gap_seconds"),
                span=8,
                when_absent=_NOT_NUMBERED,
            ),
        ],
    )
