"""Prefix cache: which prefixes does it pay for?"""

from dashboards.kit.frame import Row
from dashboards.kit.panels import TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import rate, total

_SAVED = "kvscope_prefix_cache_top_saved_tokens_total"


def row() -> Row:
    return Row(
        700,
        "Which prefixes does it pay for?",
        [
            graph(
                701,
                "Prompt tokens saved, by prefix",
                "The five prefixes that have saved most, named by the hash of their last block, "
                "and all others. Never text: what it says knows only your application. One that "
                "carries all: a system prompt; keep it first and unchanged. All in other: users "
                "share nothing. `/api/prefixes` has twenty, with their lengths, and those lost "
                "most expensively.",
                TOKENS_PER_SECOND,
                Q(total(rate(_SAVED), "prefix"), "{{prefix}}"),
                stacked=True,
                colours={"other": "#55606e"},
                span=24,
                right=True,
                calcs=("lastNotNull", "mean"),
            ),
        ],
    )
