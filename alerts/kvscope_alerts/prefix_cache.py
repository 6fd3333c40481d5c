"""Alerts about the prefix cache, and about the curve that says whether more memory helps it."""

from kvscope_alerts.recordings import HIT_RATIO_6H, HIT_RATIO_10M
from kvscope_alerts.rule import COUNT, ENGINE, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import (
    HIT_RATIO_LEFT,
    HIT_RATIO_WORTH,
    PREFIX_TOKENS_PER_SECOND,
    VETOED_SHARE,
    WHATIF_BLOCKS,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import rate, series
from kvscope_monitoring.thresholds import REGRETTED_SHARE, WHATIF_ERROR


def prefix_cache_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-prefix-cache",
            rules=[
                _collapsed(timing),
                _too_small(timing, scope),
                _vetoed(timing, scope),
                _curve_wrong(timing, scope),
            ],
        )
    ]


def _collapsed(timing: Timing) -> Alert:
    """Silent for half an hour after a start, since an empty cache fills by itself. A restart at the
    same address shows as a counter reset, or as a missing counter half an hour ago."""
    queried = series(formulas.QUERIED_TOKENS, phase="first")
    before = f"({HIT_RATIO_6H} offset {timing.range('30m')})"
    return Alert(
        name="KvscopePrefixHitRateCollapsed",
        severity="warning",
        topic="prefix-cache",
        expr=f"{HIT_RATIO_10M} < {HIT_RATIO_LEFT} * {before}\n"
        f"and {before} > {HIT_RATIO_WORTH}\nand sum without (phase) "
        f"(rate({queried}[{timing.range('10m')}])) > {PREFIX_TOKENS_PER_SECOND}\nunless sum "
        f"without (phase) (resets({queried}[{timing.range('30m')}])) > 0\n"
        f"and sum without (phase) ({queried} offset {timing.range('30m')}) >= 0",
        wait="5m",
        keep="5m",
        summary="The prefix cache hits less than half as often as it used to.",
        description=f"{ENGINE} found {{{{ $value | humanizePercentage }}}} of the prompt tokens in "
        "its prefix cache in the last ten minutes, less than half of its ratio over the six hours "
        "before.",
        board="kvscope-prefix-cache",
    )


def _too_small(timing: Timing, scope: Scope) -> Alert:
    """Its value is the number of additional blocks that would be enough: a figure to act on.

    Silent if the pool would have to be more than twice as large: that is rarely feasible, and the
    alert would never end.
    """
    each, same = f"by ({scope.engine})", f"on ({scope.engine})"
    window = timing.range("10m")
    short = series("kvscope_kv_pool_shortfall_blocks")
    usable = series("kvscope_kv_usable_blocks")
    queried = rate(formulas.QUERIED_TOKENS, window, phase="first")
    return Alert(
        name="KvscopePrefixCacheTooSmall",
        severity="warning",
        topic="prefix-cache",
        expr=f"max_over_time({short}[{window}]) <= {usable}\n"
        f"and {same} ({formulas.regretted_share(window, each)}\n"
        f"> {REGRETTED_SHARE:.2f})\n"
        f"and {same} sum {each} ({queried}) > {PREFIX_TOKENS_PER_SECOND}",
        wait="30m",
        keep="10m",
        summary="A tenth of the prompt tokens is computed again because the cache is too small.",
        description=f"In the prefix cache of {ENGINE}, {COUNT} more blocks would have kept nine "
        "tenths of what was evicted and asked for again; more than a tenth of the prompt tokens "
        "are recomputed because those blocks are gone.",
        board="kvscope-prefix-cache",
    )


def _vetoed(timing: Timing, scope: Scope) -> Alert:
    """Tokens that other kinds of layers had, compared with those found in spite of it."""
    engine, window = f"on ({scope.engine})", timing.range("30m")
    vetoed = rate("kvscope_prefix_cache_vetoed_tokens_total", window)
    by_kind = f"sum by ({scope.engine}, kind) ({vetoed})"
    found = rate("kvscope_prefix_cache_hit_tokens_total", window, phase="first")
    had = f"(sum by ({scope.engine}) ({found}) + sum by ({scope.engine}) ({vetoed}))"
    return Alert(
        name="KvscopePrefixHitsVetoed",
        severity="warning",
        topic="prefix-cache",
        expr=f"{by_kind}\n/ {engine} group_left () {had}\n> {VETOED_SHARE:.2f}\n"
        f"and {by_kind} > {PREFIX_TOKENS_PER_SECOND}",
        wait="15m",
        keep="10m",
        summary="One kind of layers refuses most prefix hits that the others have.",
        description="In the prefix cache of "
        f"{ENGINE}, layers of kind {{{{ $labels.kind }}}} lacked their part of "
        "{{ $value | humanizePercentage }} of the prompt tokens that the other kinds held: they "
        "were computed again.",
        board="kvscope-prefix-cache",
    )


def _curve_wrong(timing: Timing, scope: Scope) -> Alert:
    """Silent while the curve is withheld, as it is for an engine that is known to evict otherwise:
    then it misleads no one."""
    each = f"by ({scope.engine})"
    window = timing.range("10m")
    queried = series("kvscope_prefix_cache_whatif_queried_blocks_total")
    shown = series("kvscope_prefix_cache_whatif_hit_blocks_total")
    return Alert(
        name="KvscopeWhatifCurveWrong",
        severity="warning",
        topic="exporter",
        expr=f"{formulas.whatif_error(window, each)} > {WHATIF_ERROR}\n"
        f"and sum {each} (increase({queried}[{window}])) > {WHATIF_BLOCKS}\n"
        f"and count {each} ({shown}) > 0",
        wait="10m",
        keep="5m",
        summary="The what-if curve of a prefix cache is not to be trusted.",
        description="The hits that the what-if curve predicts for the present pool of "
        f"{ENGINE} differ from the engine's own by {{{{ $value | humanizePercentage }}}} of the "
        "blocks asked for: what it says of other sizes, and what the adviser makes of it, is "
        "wrong as well.",
        board="kvscope-prefix-cache",
    )
