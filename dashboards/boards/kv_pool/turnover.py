"""KV pool: how do references and contents turn over?"""

from dashboards.kit.frame import Row
from dashboards.kit.links import PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import A_SECOND, BLOCKS_PER_SECOND, PER_SECOND, Q, graph
from dashboards.kit.queries import rate, total


def row() -> Row:
    return Row(
        400,
        "How do they turn over?",
        [
            graph(
                401,
                "References taken",
                "Blocks handed out for prompts (prefill), new tokens (decode) and what comes back "
                "from the host (swap_in), shared from the cache (found), or copied before a write "
                "(cow); without those that samples of one prompt share. If it exceeds what is "
                "given back for minutes, running requests hold more and more; see the active "
                "share above.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_allocations_total"), "cause"), "{{cause}}"),
                Q(total(rate("kvscope_prefix_cache_hit_blocks_total")), "found"),
                stacked=True,
                colours={"prefill": "light-blue", "decode": "blue", "found": "green"},
                axis=A_SECOND,
                span=6,
                height=9,
            ),
            graph(
                402,
                "References given back",
                "By cause; each sequence gives back its own reference to a shared block. In the "
                "long run as many are given back as are taken, plus those that samples share. "
                "preempted: taken away, and their tokens may be computed again. swapped_out: "
                "taken away, with a copy on the host. aborted: clients gave up. out_of_window, "
                "cow, unpinned, failed_load: a part of a sequence, which goes on.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_releases_total"), "cause"), "{{cause}}"),
                stacked=True,
                colours={
                    "finished": "blue",
                    "aborted": "purple",
                    "preempted": "orange",
                    "swapped_out": "light-purple",
                },
                axis=A_SECOND,
                span=6,
                height=9,
            ),
            graph(
                403,
                "Evicted from the cache",
                "Cached blocks that lost their content. capacity: others needed the room; the "
                "prefix cache dashboard says whether that cost hits. reset: it was cleared by "
                "hand.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_evictions_total"), "cause"), "{{cause}}"),
                stacked=True,
                colours={"capacity": "orange", "reset": "purple"},
                axis=A_SECOND,
                span=6,
                height=9,
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                404,
                "Allocation failures",
                "How often no block was left for a running request; each time leads to a "
                "preemption. Sustained: the pool is too small for this number of sequences.",
                PER_SECOND,
                Q(total(rate("kvscope_kv_allocation_failures_total")), "failures"),
                colours={"failures": "red"},
                span=6,
                height=9,
                when_absent="Not reported by these servers; preemptions are.",
            ),
        ],
    )
