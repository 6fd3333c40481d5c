"""KV pool: what does the engine do?"""

from dashboards.kit.fleet import largest, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.levels import TOKEN_GAP_OBJECTIVE
from dashboards.kit.panels import (
    BYTES,
    COUNT,
    FULL,
    TOKENS_PER_SECOND,
    Panel,
    Q,
    graph,
    numbers,
    quantiles,
)
from dashboards.kit.queries import series, total, worst

_USABLE = series("kvscope_kv_usable_blocks")


def row() -> Row:
    return Row(
        600,
        "What does the engine do, for whom, and how large is it?",
        [
            quantiles(
                601,
                "Between two tokens",
                "Each preemption is one long gap. p99 up with p50 flat: preemptions. Both up: "
                "large prefills in the same steps; lower --max-num-batched-tokens.",
                *quantile_lines("kvscope_inter_token_latency_seconds", 0.5, 0.95, 0.99),
                TOKEN_GAP_OBJECTIVE,
                height=8,
                span=8,
            ),
            quantiles(
                603,
                "A step",
                "Duration of an engine step, the lower bound of any token's latency. p99 shows "
                "the large prefills. If all go up, the GPU slows down; look at its clocks in "
                "Memory and OOM risk.",
                *quantile_lines("kvscope_step_duration_seconds", 0.5, 0.99),
                when_absent=FULL,
                span=8,
            ),
            _tenants(),
            numbers(
                604,
                "Size",
                "Usable blocks, the tokens that they hold, and sequences of the longest length; "
                "summed over the selected engines. Too small? Memory and OOM risk shows how the "
                "pool got its size, `kvscope plan` what another size would hold.",
                COUNT,
                Q(total(_USABLE), "usable blocks"),
                Q(total(series("kvscope_kv_usable_tokens")), "tokens"),
                Q(total(series("kvscope_kv_full_length_sequences")), "sequences of full length"),
                Q(worst(series("kvscope_kv_block_size_tokens")), "tokens of a block"),
                Q(total(f"{_USABLE} * {series('kvscope_kv_block_size_bytes')}"), "K and V"),
                units={"K and V": BYTES},
                span=24,
                height=4,
            ),
        ],
    )


def _tenants() -> Panel:
    return graph(
        606,
        "Who asks?",
        "Prompt and output tokens, by tenant: one can fill a pool for all others. Named by the "
        "hash of `user`, or of a vLLM's `cache_salt`, session or what KVSCOPE_OBSERVER_TENANT in "
        "its environment names. For each tenant's waiting time, "
        "preemptions and share of the prompt that was computed: `kvscope tenants "
        "http://SERVER:PORT...`, over any number of servers.",
        TOKENS_PER_SECOND,
        *largest("kvscope_top_tenant_tokens_total", "tenant"),
        stacked=True,
        colours={"other": "#55606e"},
        span=8,
        listed=True,
        when_absent=FULL,
    )
