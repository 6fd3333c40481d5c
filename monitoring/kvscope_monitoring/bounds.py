"""The bucket by which a limit is judged in histograms with bounds of their own.

First tokens and gaps between tokens are read in the buckets of each kind of server. So a limit is
judged by the bound nearest to it: the largest one from three quarters of the limit on, or without
such a one the smallest up to one and a half times it.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType

from kvscope_exporter.catalogue import metric
from kvscope_exporter.state.buckets import (
    FIRST_TOKEN_SECONDS,
    INTER_TOKEN_SECONDS,
    VLLM_FIRST_TOKEN_SECONDS,
    VLLM_INTER_TOKEN_SECONDS,
)

FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
TOKEN_GAP = "kvscope_inter_token_latency_seconds"
SGLANG_FIRST_TOKEN_SECONDS = (
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400),
)
SGLANG_INTER_TOKEN_SECONDS = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_ALL: Mapping[str, Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        FIRST_TOKEN: MappingProxyType(
            {
                "kvscope": FIRST_TOKEN_SECONDS,
                "vllm": VLLM_FIRST_TOKEN_SECONDS,
                "sglang": SGLANG_FIRST_TOKEN_SECONDS,
            }
        ),
        TOKEN_GAP: MappingProxyType(
            {
                "kvscope": INTER_TOKEN_SECONDS,
                "vllm": VLLM_INTER_TOKEN_SECONDS,
                "sglang": SGLANG_INTER_TOKEN_SECONDS,
            }
        ),
    }
)
BOUNDS: Mapping[str, Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        family: {kind: metric(family).lean_bounds(bounds) for kind, bounds in kinds.items()}
        for family, kinds in _ALL.items()
    }
)
"""Bounds of a lean page by family and by whose buckets they are, as far as their default is known.
"""

_LEAST, _MOST = Decimal("0.75"), Decimal("1.5")


def judged_at(limit: float, bounds: Iterable[float]) -> float | None:
    """The bound by which the limit is judged; None: none is near it."""
    exact = Decimal(str(limit))
    known = {Decimal(str(bound)): bound for bound in bounds}
    below = [bound for bound in known if _LEAST * exact <= bound <= exact]
    above = [bound for bound in known if exact < bound <= _MOST * exact]
    if below:
        return known[max(below)]
    return known[min(above)] if above else None


def limits(family: str) -> tuple[float, ...]:
    """The limits that can be judged in the buckets of every kind."""
    kinds = BOUNDS[family].values()
    every = {bound for bounds in _ALL[family].values() for bound in bounds}
    fit = [limit for limit in every if all(judged_at(limit, bounds) for bounds in kinds)]
    return tuple(sorted(fit))


def at_or_below(limit: float) -> str:
    """A regular expression for the label `le` of the bounds from three quarters of the limit on.

    Prometheus 2 writes a whole bound as `5`, Prometheus 3 as `5.0`: it matches both.
    """
    exact = Decimal(str(limit))
    whole, _, fraction = f"{exact.normalize():f}".partition(".")
    same = rf"{whole}[.]{fraction}0*" if fraction else rf"{whole}([.]0+)?"
    return f"{same}|{_between(_LEAST * exact, exact)}"


def above(limit: float) -> str:
    """The same for the bounds above the limit, up to one and a half times it."""
    exact = Decimal(str(limit))
    return _between(exact, _MOST * exact)


def _between(low: Decimal, high: Decimal) -> str:
    """Numbers from `low` on and below `high`, to two significant digits of `high`."""
    shift = 1 - high.adjusted()  # so that `high` has two digits before the point
    first, end = (math.ceil(number.scaleb(shift)) for number in (low, high))
    by_head: dict[int, list[int]] = {}
    for step in range(first, end):
        by_head.setdefault(step // 10, []).append(step % 10)
    return "|".join(_numbers(head, tails, shift) for head, tails in by_head.items())


def _numbers(head: int, tails: list[int], shift: int) -> str:
    """Numbers of which `head` is the first digit, the next is in `tails`, and others are any;
    shift: how far the point stands before the digit that follows the next."""
    if shift <= 0:
        return f"{head or ''}{_digit(tails)}{'[0-9]' * -shift}([.][0-9]+)?"
    before = f"{head}" if shift == 1 else f"0[.]{'0' * (shift - 2)}{head}"
    point = "[.]" if shift == 1 else ""
    parts = []
    if tails[0] == 0:  # it is not written at the end
        parts.append(f"{before}({point}0[0-9]*)?")
    if more := [tail for tail in tails if tail]:
        parts.append(f"{before}{point}{_digit(more)}[0-9]*")
    return "|".join(parts)


def _digit(digits: list[int]) -> str:
    """One of consecutive digits."""
    return f"[{digits[0]}-{digits[-1]}]" if len(digits) > 1 else str(digits[0])
