"""Findings of a file about caches of other sizes: what they cannot show, and how they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

DECADES = 3
"""Ratio to the largest capacity; a cache this much smaller holds next to nothing of its content."""


def capacities_up_to(largest: int) -> list[int]:
    """About ten capacities over three decades, `largest` the last of them."""
    smallest = largest // 10**DECADES
    found, power = [], 1
    while power < largest:
        found += [step * power for step in (1, 2, 5) if smallest <= step * power < largest]
        power *= 10
    return [*found, largest]


OF_ALL = (
    "more capacity that attracts more requests, or faster ones",
    "eviction other than of the least recently used, and caches beside the pool (host, disk, "
    "other replicas)",
    "latency: the curve is about hits alone",
)
OF_TRACES = (
    "running requests, which hold their blocks: each request returns them at once",
    "generated tokens: a trace has no ids for their blocks",
)
OF_RECORDINGS = (
    "a pool too small for the requests that ran: it would have queued or preempted them",
    "content computed twice at the same time: a larger pool might not have computed it again",
    "requests that waited: a larger pool would have admitted them earlier and computed equal "
    "beginnings at the same time, so that it finds at most these hits",
    "other running times: with more hits, requests end sooner and hold their blocks for less long",
)


FLAT = 0.005
"""Difference of hit ratios that does not justify more blocks."""

_CURVE, _POOL = "#4c72b0", "#dd8452"
"""Colours that also differ in greyscale."""


class WhatIfError(ValueError):
    """A file without a curve; `str()` says why, in one line."""


def is_recording(file: Path) -> bool:
    """False: it looks like a trace. Raises WhatIfError for neither, or OSError."""
    from kvscope.traces.request import GZIP
    from kvscope_exporter.recorder.format import MAGIC

    if not file.is_file() and file.stat():
        raise WhatIfError(f"{file}: not a file that can be read twice: name a trace or a recording")
    with file.open("rb") as content:
        begin = content.read(len(MAGIC))
    if not begin:
        raise WhatIfError(f"{file}: the file is empty")
    if begin != MAGIC and not begin.startswith((b"{", GZIP)):
        raise WhatIfError(
            f"{file}: neither a recording of kvscope, nor a trace, which has a JSON object on each "
            "line"
        )
    return begin == MAGIC


class Point(NamedTuple):
    """One capacity, and the hits of a cache of that size."""

    capacity_blocks: int
    hit_blocks: int
    queried_blocks: int

    @property
    def hit_ratio(self) -> float | None:
        """None: there were no queries."""
        return self.hit_blocks / self.queried_blocks if self.queried_blocks else None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pool of a recording, and its own hits."""

    usable_blocks: int
    """Its capacity without the blocks that are never handed out."""
    block_size: int
    """Tokens of a block."""
    hit_blocks: int
    """Hits that the engine reported for the lookups of the curve."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A curve with everything needed to judge it."""

    kind: Literal["trace", "recording"]
    points: Sequence[Point]
    """By capacity, the smallest first; requested capacities that are missing are unknown, which
    `doubts` explains."""
    lookups: int
    """Requests of a trace; admissions of a recording, resumed ones included."""
    queried_blocks: int
    distinct_blocks: int | None
    """Distinct blocks that were queried: a cache that holds them all has the maximum of hits. None:
    not counted."""
    seconds: float | None
    """Seconds between first and last lookup; None: not known."""
    pool: Pool | None = None
    """None: traces have none."""
    format: str | None = None
    """The dialect of a trace."""
    block_tokens: int | None = None
    """Tokens of a block; None: as the pool has."""
    lower_bounds: Sequence[int] = ()
    """Capacities whose real hits may be higher."""
    doubts: Sequence[str] = ()
    """Problems of the file, and what is unknown for that reason."""

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """Effects of a different capacity that are not in the curve."""
        return (*(OF_TRACES if self.kind == "trace" else OF_RECORDINGS), *OF_ALL)

    @property
    def verdict(self) -> str | None:
        """The curve's conclusion, in a sentence or two; None: too little is known."""
        known = [(point.capacity_blocks, point.hit_ratio) for point in self.points]
        shown = [(capacity, ratio) for capacity, ratio in known if ratio is not None]
        if len(shown) < 2:
            return None
        largest, most = shown[-1]
        flat = next(capacity for capacity, ratio in shown if most - ratio <= FLAT)
        if flat == largest:
            says = f"The curve still rises at {largest:,} blocks, the largest size here."
        else:
            says = f"Flat from {flat:,} blocks on: larger sizes find less than half a point more."
        now = None if self.pool is None else dict(shown).get(self.pool.usable_blocks)
        if now is None or self.pool is None:
            return says
        if self.pool.usable_blocks >= flat:
            return f"{says} More than the pool's {self.pool.usable_blocks:,} would be wasted."
        bound = "at least " if flat in self.lower_bounds else ""
        more = 100 * (dict(shown)[flat] - now)
        return f"{says} {flat:,} would find {bound}{more:.1f} points more than the pool."


def save_plot(found: Findings, name: str, file: Path) -> None:
    """Draw the curve and the present pool, in the format that the file's suffix names.

    Raises ValueError or OSError.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter, StrMethodFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(name)
    shown = [(p.capacity_blocks, p.hit_ratio) for p in found.points if p.hit_ratio is not None]
    capacities = [capacity for capacity, _ in shown]
    axes.plot(capacities, [ratio for _, ratio in shown], marker="o", color=_CURVE)
    if found.pool is not None:
        here = found.pool.usable_blocks
        axes.axvline(here, linestyle="--", color=_POOL, label=f"the pool: {here:,} blocks")
        axes.legend(loc="lower right")
    axes.set(title="Hit ratio", xlabel="capacity, blocks", xscale="log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=True, which="major", alpha=0.3)
    figure.savefig(file)
