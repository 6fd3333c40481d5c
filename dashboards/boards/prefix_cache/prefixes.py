"""Prefix cache: which prefixes does it pay for?"""

from dashboards.kit.fleet import largest
from dashboards.kit.frame import Row
from dashboards.kit.panels import FULL, TOKENS_PER_SECOND, graph


def row() -> Row:
    return Row(
        700,
        "Which prefixes does the cache pay off for?",
        [
            graph(
                701,
                "Prompt tokens saved, by prefix",
                "The prefixes that save most, named by the hash of their last block, five of each "
                "engine and of many engines ten in all; and all others. Never their text: only "
                "your application knows it. One that dominates: a system prompt; keep it first "
                "and unchanged. All in other: users share nothing. `/api/prefixes` has twenty for "
                "each engine, with their lengths, and those most expensive to lose.",
                TOKENS_PER_SECOND,
                *largest("kvscope_prefix_cache_top_saved_tokens_total", "prefix"),
                stacked=True,
                colours={"other": "#55606e"},
                span=24,
                right=True,
                when_absent=FULL,
                calcs=("lastNotNull", "mean"),
            ),
        ],
    )
