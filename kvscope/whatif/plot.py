"""A curve as a picture: hit ratio over capacity, and where the present pool is."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from kvscope.whatif.findings import Findings

_CURVE, _POOL = "#4c72b0", "#dd8452"
"""Colours that also differ in greyscale."""


def save_plot(found: Findings, name: str, file: Path) -> None:
    """Write `file` in the format that its suffix names. Raises ValueError or OSError."""
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
