"""Prefix cache: which prefixes does it pay for?"""

from dashboards.kit.fleet import among
from dashboards.kit.frame import Row
from dashboards.kit.panels import TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import ENGINE, rate, total

_SAVED = "kvscope_prefix_cache_top_saved_tokens_total"


def row() -> Row:
    named = total(rate(_SAVED, f'{ENGINE},prefix!="other"'), "prefix")
    top = among(named, "{{prefix}}", by="prefix", rank="avg")
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
                top,
                Q(
                    f"{total(rate(_SAVED))} - (sum({top.expr}) or 0 * {total(rate(_SAVED))})",
                    "other",
                ),
                stacked=True,
                colours={"other": "#55606e"},
                span=24,
                right=True,
                calcs=("lastNotNull", "mean"),
            ),
        ],
    )
