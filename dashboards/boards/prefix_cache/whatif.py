"""Prefix cache: would more memory help, or less do?

The curve of the time range on screen: hits of first lookups at other sizes of the pool, predicted
from the lookups that came. With several engines selected, sizes and hits are their sums; of
several models the busiest is shown.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.curves import Curve, curve
from dashboards.kit.frame import Row
from dashboards.kit.panels import BLOCKS, BYTES, RATIO, TOKENS_PER_SECOND, Q, numbers
from dashboards.kit.queries import BY_ENGINE, ENGINE, WHOLE_RANGE, over_range, series, total
from dashboards.kit.tables import Column, rows
from kvscope_exporter.catalogue import metric
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import rate

_HITS = "kvscope_prefix_cache_whatif_hit_blocks_total"
SIZES = tuple(s for s in metric(_HITS).closed_labels["scale"] if s != "inf")
"""Scales in the form of the label, ascending."""
_PRESENT, _UNLIMITED, _LARGEST = "1", "inf", SIZES[-1]
_SIZE_NAMES = {size: f"{size}x" for size in SIZES} | {_UNLIMITED: "never evicts"}
_MARKS = {0: ("", "transparent"), 1: ("you are here", "transparent"), 2: ("best value", "blue")}
_WORTH_IT = 0.05
"""Gain in hits that four times the pool must bring for any size to be recommended."""
_BLOCK_BYTES = series("kvscope_kv_block_size_bytes")
_BLOCK_TOKENS = series("kvscope_kv_block_size_tokens")
_EVERY_ROW = "on () group_left ()"
_QUERIED = "kvscope_prefix_cache_whatif_queried_blocks_total"
_BUSIEST = f"and on (model_name) topk(1, {total(over_range(_QUERIED), 'model_name')})"
"""Blocks of different models have different sizes: a sum over them would mean nothing."""
_USABLE = f"({series('kvscope_kv_usable_blocks')} {_BUSIEST})"
_NOT_YET = (
    "Not known: no lookups in this time range, or an engine whose evictions are not reported."
)


def _hits(*scales: str) -> str:
    found = over_range(_HITS, scale=scales) if scales else over_range(_HITS)
    return f"({found} {_BUSIEST})"


def _ratio(*scales: str) -> str:
    queried = f"{over_range(_QUERIED)} {_BUSIEST}"
    return f"{total(_hits(*scales), 'scale')} / {_EVERY_ROW} ({total(queried)} > 0)"


def _scale() -> str:
    """The label's value as the sample's value: 0.25{scale="0.25"}."""
    return " or ".join(f"{size} * group by (scale) ({_hits(size)})" for size in SIZES)


def _at_every_size(expr: str) -> str:
    """One value, repeated in a row for each size."""
    return f"0 * ({_scale()}) + {_EVERY_ROW} sum({expr})"


def _saved() -> str:
    """Prompt tokens a second that each size would save beyond the present one."""
    tokens = f"on ({BY_ENGINE}) group_left () {_BLOCK_TOKENS}"
    each = f"({rate(_HITS, WHOLE_RANGE, ENGINE)} {_BUSIEST})"
    now = f"({rate(_HITS, WHOLE_RANGE, ENGINE, scale=_PRESENT)} {_BUSIEST})"
    return f"{total(f'{each} * {tokens}', 'scale')} - {_EVERY_ROW} {total(f'{now} * {tokens}')}"


def _mark() -> str:
    """2 for the size to take, 1 for the present one, 0 for the others: codes of _MARKS."""
    here = f"{_EVERY_ROW} sum({_ratio(_PRESENT)})"
    gain = f"(sum({_ratio(_LARGEST)}) - sum({_ratio(_PRESENT)}))"
    enough = f"({_ratio(*SIZES)} - {here}) >= {_EVERY_ROW} (0.8 * ({gain} > {_WORTH_IT}))"
    sizes = f"(({_scale()}) and on (scale) ({enough}))"
    best = f"({sizes}) == {_EVERY_ROW} min({sizes})"
    return (
        f"2 * group by (scale) ({best}) or group by (scale) {_hits(_PRESENT)}"
        f" or 0 * group by (scale) {_hits()}"
    )


def row() -> Row:
    blocks = f"({_scale()}) * {_EVERY_ROW} {total(_USABLE)}"
    memory = f"({_scale()}) * {_EVERY_ROW} {total(f'{_USABLE} * {_BLOCK_BYTES}')}"
    return Row(
        600,
        "Would more memory help?  (time range on screen)",
        [
            numbers(
                603,
                "Whose curve, and how wrong is it?",
                "The model with most lookups among those selected: pools of several models have "
                "no curve together; choose another above. The number is the difference between "
                "the predicted and the actual hits at the present size, as a share of the blocks "
                "requested. 0: exact. Orange: the engine does not evict the oldest first, or "
                "events are wrong; do not trust the curve.",
                RATIO,
                Q(
                    f"{formulas.whatif_error(WHOLE_RANGE, 'by (model_name)', ENGINE)}\n{_BUSIEST}",
                    "{{model_name}}",
                ),
                steps=limits.WHATIF_ERROR,
                span=24,
                height=3,
                when_absent="not yet",
            ),
            curve(
                601,
                "Hit ratio at other sizes of the pool",
                "Share of the requested blocks that a pool of another size would have found, for "
                "the same requests. Steep to the right of the present size: more memory buys "
                "hits. Flat to the left: less would do. While requests wait, larger sizes find at "
                "most this. Not modelled: that a faster server attracts more load, and a pool too "
                "small for its running requests.",
                Q(blocks, "blocks"),
                Q(_ratio(*SIZES), "hit ratio"),
                Q(_at_every_size(_ratio(_UNLIMITED)), "ratio without limit"),
                Q(_at_every_size(_USABLE), "blocks now"),
                Q(_at_every_size(_ratio(_PRESENT)), "ratio now"),
                drawn=(
                    Curve("at this size", "blocks", "hit ratio", "green"),
                    Curve("no limit", "blocks", "ratio without limit", "text", "lines"),
                    Curve("you are here", "blocks now", "ratio now", "orange", "points"),
                ),
                x_axis="usable blocks",
                x_unit=BLOCKS,
                y_unit=RATIO,
                span=12,
                when_absent=_NOT_YET,
            ),
            rows(
                602,
                "What another size would cost, and save",
                "By size: the present pool is 1x. Estimate of the prompt tokens a second that "
                "each size would save beyond the present one, while requests wait at most these; "
                "below 0, tokens computed in addition. best value: "
                "the smallest size with four fifths of the gain of four times the pool; compare "
                "its bytes with GPU room on Memory. If a connector loads evicted blocks, those "
                "count as saved: see kvscope advise.",
                Q(blocks, "blocks"),
                Q(memory, "memory"),
                Q(_saved(), "saved"),
                Q(_mark(), "mark"),
                columns={
                    "scale": Column("Size", words=_SIZE_NAMES, width=100),
                    "mark": Column("Verdict", meanings=_MARKS, width=105),
                    "blocks": Column("Blocks", BLOCKS, width=85, decimals=0),
                    "memory": Column("K and V", BYTES, width=90),
                    "saved": Column("Saves about", TOKENS_PER_SECOND, least=90, decimals=0),
                },
                span=12,
                height=10,
                when_absent=_NOT_YET,
            ),
        ],
    )
