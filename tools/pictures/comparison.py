"""A board for one picture: vLLM's own counters and those of an observed vLLM, on top of each other.

Prometheus scrapes vLLM's page as job `vllm` and kvscope's as job `kvscope`.
"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.kit.frame import Row, assemble
from dashboards.kit.panels import (
    BLOCKS,
    COUNT,
    RATIO,
    TOKENS,
    TOKENS_PER_SECOND,
    Panel,
    Q,
    graph,
)
from dashboards.kit.variables import EVERY_ENGINE, engine_variables

_THEIRS = '{job="vllm"}'
_OURS = '{job="kvscope"}'
_COLOURS = {"vLLM": "orange", "kvscope": "blue"}


def build() -> db.Dashboard:
    """Nine panels: six with both, three with what only kvscope knows."""
    return assemble(
        "An observed vLLM",
        "kvscope-comparison",
        "What vLLM says of itself, and what its observer says.",
        engine_variables(EVERY_ENGINE),
        [Row(100, "Both say it", _both()), Row(200, "Only kvscope says it", _only_ours())],
    )


def _both() -> list[Panel]:
    return [
        _pair(
            101,
            "Referenced blocks",
            RATIO,
            f"vllm:kv_cache_usage_perc{_THEIRS}",
            f"kvscope_kv_active_ratio{_OURS}",
        ),
        _pair(
            102,
            "Generated tokens",
            TOKENS_PER_SECOND,
            _rate("vllm:generation_tokens_total", _THEIRS),
            _rate("vllm:generation_tokens_total", _OURS),
        ),
        _pair(
            103,
            "Preemptions so far",
            COUNT,
            f"vllm:num_preemptions_total{_THEIRS}",
            f"sum(kvscope_preemptions_total{_OURS})",
        ),
        _pair(
            104,
            "Tokens asked of the prefix cache",
            TOKENS,
            f"vllm:prefix_cache_queries_total{_THEIRS}",
            _first("kvscope_prefix_cache_queried_tokens_total"),
        ),
        _pair(
            105,
            "Tokens found in the prefix cache",
            TOKENS,
            f"vllm:prefix_cache_hits_total{_THEIRS}",
            _first("kvscope_prefix_cache_hit_tokens_total"),
        ),
        _pair(
            106,
            "Requests that run",
            COUNT,
            f"vllm:num_requests_running{_THEIRS}",
            'kvscope_requests{job="kvscope",state="running"}',
        ),
    ]


def _only_ours() -> list[Panel]:
    return [
        graph(
            201,
            "Every block",
            "The states add up to the pool.",
            BLOCKS,
            Q(f"sum by (state) (kvscope_kv_blocks{_OURS})", "{{state}}"),
            stacked=True,
            span=8,
        ),
        graph(
            202,
            "Missed blocks by cause",
            "Blocks that were asked for and not found.",
            BLOCKS,
            Q(
                f"sum by (cause) (rate(kvscope_prefix_cache_missed_blocks_total{_OURS}"
                "[$__rate_interval]))",
                "{{cause}}",
            ),
            stacked=True,
            span=8,
        ),
        graph(
            203,
            "What preemptions cost",
            "Tokens thrown away, and those of them that were computed again.",
            TOKENS,
            Q(f"sum(kvscope_preemption_discarded_tokens_total{_OURS})", "discarded"),
            Q(f"sum(kvscope_preemption_recomputed_tokens_total{_OURS})", "recomputed"),
            span=8,
        ),
    ]


def _pair(id: int, title: str, unit: str, theirs: str, ours: str) -> Panel:
    return graph(
        id,
        title,
        "Two lines that should be one.",
        unit,
        Q(f"sum({theirs})", "vLLM"),
        Q(f"sum({ours})", "kvscope"),
        colours=_COLOURS,
        lines=("kvscope",),
        span=8,
    )


def _rate(name: str, selector: str) -> str:
    return f"rate({name}{selector}[$__rate_interval])"


def _first(name: str) -> str:
    return f'{name}{{job="kvscope",phase="first"}}'
