"""KV pool: one engine in depth. Who holds the blocks, how they turn over, what pressure costs."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables, gpu_variable
from dashboards.kv_pool_costs import cost, experience, steps
from dashboards.links import KV_POOL, PREFIX_CACHE, to_dashboard
from dashboards.panels import (
    BLOCKS,
    BLOCKS_PER_SECOND,
    BYTES,
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    TOKENS,
    Q,
    graph,
    numbers,
)
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    or_zero,
    over_range,
    rate,
    series,
    share,
    total,
    worst,
)

_CAPACITY = series("kvscope_kv_capacity_blocks")
_COMMITTED = series("kvscope_kv_committed_blocks")
_ACTIVE = series("kvscope_kv_blocks", state="active")


def build() -> db.Dashboard:
    """One engine; with several selected, counts are sums and ratios stand by engine."""
    return assemble(
        "KV pool",
        KV_POOL,
        "One engine's KV pool: will it fill, who holds its blocks, what did pressure cost?",
        [*engine_variables("kvscope_kv_capacity_blocks"), gpu_variable("kvscope_gpu_up")],
        [_verdict(), _holders(), cost(), _turnover(), experience(), steps(), _size()],
    )


def _verdict() -> Row:
    return Row(
        100,
        "Is this pool in trouble?",
        [
            numbers(
                101,
                "In use",
                "Blocks that requests reference, of those that can be handed out. Red: the next "
                "burst preempts. Stays red: add replicas or KV memory, or lower --max-num-seqs.",
                RATIO,
                Q(worst(series("kvscope_kv_usage_ratio", basis="active")), ""),
                steps=limits.POOL_USAGE,
                span=4,
            ),
            numbers(
                102,
                "Full in",
                "If the last minute's trend goes on. 'not filling' is the normal answer. Below a "
                "minute: stop sending this engine new work now.",
                SECONDS,
                Q(f"min({series('kvscope_kv_time_to_exhaustion_seconds')})", ""),
                steps=limits.TIME_TO_EXHAUSTION,
                when_absent="not filling",
                span=4,
            ),
            numbers(
                103,
                "Promised",
                "Blocks needed if every running request goes on to its max_tokens, over the "
                "capacity. A chat without max_tokens counts with the whole context: above 100 % is "
                "normal then. With a full pool it means preemption: lower max_tokens or "
                "--max-num-seqs.",
                RATIO,
                Q(worst(share(_COMMITTED, _CAPACITY)), ""),
                steps=limits.COMMITTED_SHARE,
                span=4,
            ),
            numbers(
                104,
                "Preemptions",
                "In the time range on screen: running requests that lost their blocks. A few in a "
                "peak are cheap; see the bill below before you act.",
                COUNT,
                Q(or_zero(total(over_range("kvscope_preemptions_total"))), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                decimals=0,
                span=4,
            ),
            numbers(
                105,
                "Tokens done twice",
                "In the time range on screen: tokens that preemptions threw away and that had to "
                "be computed again. Divide by tokens per second for the GPU time they took.",
                TOKENS,
                Q(or_zero(total(over_range("kvscope_preemption_recomputed_tokens_total"))), ""),
                span=4,
            ),
            numbers(
                106,
                "Seconds stalled",
                "In the time range on screen: time that preempted requests stood still, all "
                "together, counted when they resume. Users see it as a reply that stops midway.",
                SECONDS,
                Q(or_zero(total(over_range("kvscope_preemption_stalled_seconds_total"))), ""),
                span=4,
            ),
        ],
    )


def _holders() -> Row:
    tokens = f"{_ACTIVE} * ignoring (state) {series('kvscope_kv_block_size_tokens')}"
    return Row(
        200,
        "What holds the blocks?",
        [
            graph(
                201,
                "Every block of the pool",
                "active: referenced by requests. cached: referenced by nobody, but findable, and "
                "taken when needed. free: empty. They add up to the capacity. Only active at the "
                "top is pressure; cached at the top is a cache that uses idle memory well.",
                BLOCKS,
                Q(total(series("kvscope_kv_blocks"), "state"), "{{state}}"),
                Q(total(_CAPACITY), "capacity"),
                stacked=True,
                lines=("capacity",),
                colours=limits.BLOCK_COLOURS,
                axis="blocks",
                height=9,
                span=14,
                right=True,
                calcs=("lastNotNull",),
            ),
            graph(
                202,
                "In use, and holding anything",
                "active: referenced. resident: referenced or findable. The gap between both is "
                "the cache's. Active near 100 %: preemptions follow.",
                RATIO,
                Q(
                    worst(series("kvscope_kv_usage_ratio"), f"{BY_ENGINE}, basis"),
                    f"{{{{basis}}}}, {ENGINE_LEGEND}",
                ),
                high=1,
                steps=limits.POOL_USAGE,
                height=9,
                span=10,
            ),
            graph(
                203,
                "Sharing saves",
                "Blocks that more than one request references, and the blocks that sharing saves. "
                "0 with equal prompts: prefix caching is off, or prompts differ early.",
                BLOCKS,
                Q(total(series("kvscope_kv_shared_blocks")), "shared"),
                Q(total(series("kvscope_kv_deduplicated_blocks")), "saved"),
                axis="blocks",
                span=6,
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                204,
                "Reserved, but not written",
                "Share of the slots of active blocks that hold no token: the price of blocks. "
                "Half a block a sequence is normal; more than a fifth of the pool: smaller "
                "--block-size.",
                RATIO,
                Q(
                    share(
                        total(series("kvscope_kv_unfilled_slots"), BY_ENGINE),
                        total(tokens, BY_ENGINE),
                    ),
                    ENGINE_LEGEND,
                ),
                span=6,
            ),
            graph(
                205,
                "Full in",
                "Time until active blocks fill the pool if the last minute's trend goes on. Gaps: "
                "not filling. It falls steadily to 0: act before it is there.",
                SECONDS,
                Q(
                    f"min by ({BY_ENGINE}) ({series('kvscope_kv_time_to_exhaustion_seconds')})",
                    ENGINE_LEGEND,
                ),
                steps=limits.TIME_TO_EXHAUSTION,
                calcs=("lastNotNull", "min"),
                span=6,
                when_absent="Not filling in this time range.",
            ),
            graph(
                206,
                "Promised",
                "Blocks needed if every running request goes on to its max_tokens, over the "
                "capacity. Clients that name no max_tokens keep it high. Falling time at the left "
                "and more than 100 % here: preemption follows; lower max_tokens.",
                RATIO,
                Q(worst(share(_COMMITTED, _CAPACITY), BY_ENGINE), ENGINE_LEGEND),
                steps=limits.COMMITTED_SHARE,
                span=6,
            ),
        ],
    )


def _turnover() -> Row:
    return Row(
        400,
        "How do they turn over?",
        [
            graph(
                401,
                "References taken",
                "Blocks handed out for prompts (prefill) and new tokens (decode), and shared from "
                "the cache (found). More than is given back for minutes: running requests hold "
                "more and more; see In use above.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_allocations_total"), "cause"), "{{cause}}"),
                Q(total(rate("kvscope_prefix_cache_hit_blocks_total")), "found"),
                stacked=True,
                colours={"prefill": "light-blue", "decode": "blue", "found": "green"},
                span=6,
                height=9,
            ),
            graph(
                402,
                "References given back",
                "By why; of a shared block each request gives back its own. In the long run as "
                "many as are taken. preempted: taken away, its tokens may be computed again. "
                "aborted: clients that gave up.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_releases_total"), "cause"), "{{cause}}"),
                stacked=True,
                colours={"finished": "blue", "aborted": "purple", "preempted": "orange"},
                span=6,
                height=9,
            ),
            graph(
                403,
                "Evicted from the cache",
                "Cached blocks that lost their content. capacity: for others to use; whether that "
                "cost hits, the prefix cache dashboard says. reset: somebody cleared the cache.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_evictions_total"), "cause"), "{{cause}}"),
                stacked=True,
                colours={"capacity": "orange", "reset": "purple"},
                span=6,
                height=9,
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                404,
                "Allocation failures",
                "Times that no block was left for a running request; each leads to a preemption. "
                "Sustained: the pool is too small for this number of sequences.",
                PER_SECOND,
                Q(total(rate("kvscope_kv_allocation_failures_total")), "failures"),
                colours={"failures": "red"},
                span=6,
                height=9,
            ),
        ],
    )


def _size() -> Row:
    return Row(
        700,
        "How large is it?",
        [
            numbers(
                701,
                "Size",
                "What the pool comes to, summed over the selected engines. Too small? Memory and "
                "OOM risk shows how it got its size; `kvscope plan` what another size would hold.",
                COUNT,
                Q(total(_CAPACITY), "blocks"),
                Q(total(series("kvscope_kv_capacity_tokens")), "tokens"),
                Q(total(series("kvscope_kv_full_length_sequences")), "sequences of full length"),
                span=12,
                height=4,
            ),
            numbers(
                702,
                "A block",
                "Tokens that one block holds. Small blocks waste less at a sequence's end, large "
                "ones make shorter tables; 16 is the usual choice.",
                COUNT,
                Q(worst(series("kvscope_kv_block_size_tokens")), "tokens"),
                span=4,
                height=4,
            ),
            numbers(
                703,
                "Bytes of a block, and of the pool",
                "Bytes of K and V of all layers. If they are not what `kvscope plan` says, the KV "
                "dtype is another one.",
                BYTES,
                Q(worst(series("kvscope_kv_block_size_bytes")), "block"),
                Q(total(f"{_CAPACITY} * {series('kvscope_kv_block_size_bytes')}"), "pool"),
                span=8,
                height=4,
            ),
        ],
    )
