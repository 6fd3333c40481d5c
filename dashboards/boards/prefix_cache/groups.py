"""Prefix cache: which kind of layers refuses what the others have? For hybrid models."""

from dashboards.kit.frame import Row
from dashboards.kit.panels import TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import rate, total

_ALONE = "kvscope_prefix_cache_group_hit_tokens_total"
_FOUND = "kvscope_prefix_cache_hit_tokens_total"
_VETOED = "kvscope_prefix_cache_vetoed_tokens_total"
_PLAIN = "All layers of this model are of one kind."
_COLOURS = {
    "full_attention": "blue",
    "sliding_window": "orange",
    "state": "purple",
    "found": "green",
}


def row() -> Row:
    return Row(
        800,
        "Layers of several kinds: which kind refuses hits?",
        [
            graph(
                801,
                "Hits that each kind alone would allow",
                "Prompt tokens. A prompt hits only as far as all kinds of layers have their part. "
                "found far below full_attention: windows or states veto; the panel on the right "
                "says why.",
                TOKENS_PER_SECOND,
                Q(total(rate(_ALONE), "kind"), "{{kind}}"),
                Q(
                    f"{total(rate(_FOUND, phase='first'))} and on () {total(rate(_ALONE))}",
                    "found",
                ),
                colours=_COLOURS,
                span=12,
                height=8,  # of the legend's rows the third would be cut off
                when_absent=_PLAIN,
            ),
            graph(
                802,
                "Vetoed, by kind and reason",
                "Prompt tokens that other kinds had and this one refused. evicted: a larger pool "
                "keeps more. never_kept: windows and states keep only ends of prompts; a shorter "
                "retention interval keeps more. unaligned: smaller blocks help.",
                TOKENS_PER_SECOND,
                Q(total(rate(_VETOED), "kind, cause"), "{{kind}}, {{cause}}"),
                stacked=True,
                span=12,
                height=8,  # of the legend's rows the third would be cut off
                when_absent=_PLAIN,
            ),
        ],
    )
