"""A plan as a picture: the division of the GPU's memory, and the sequences that fit by length."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from kvscope.plan.plan import Plan
from kvscope.plan.report import PREFILLS, contexts
from kvscope_engine.sizing.units import GIB

_PARTS = {
    "weights": "#4c72b0",
    "adapters": "#8172b3",
    "activations": "#dd8452",
    "other": "#8c8c8c",
    "kv_pool": "#55a868",
    "outside": "#d9d9d9",
}
"""Parts of a budget, from the bottom up, in colours that also differ in greyscale."""


def save_plot(plan: Plan, file: Path) -> None:
    """Write `file` in the format that its suffix names. Raises ValueError or OSError."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    division, capacity = figure.subplots(1, 2)
    figure.suptitle(plan.shape.name)
    _draw_division(plan, division)
    _draw_capacity(plan, capacity)
    figure.savefig(file)


def _draw_division(plan: Plan, axes: Axes) -> None:
    """Stacked bars, or KV alone if there is no budget to divide."""
    axes.set_ylabel("GiB")
    budgets = [plan.budget(prefill) for prefill in PREFILLS]
    names = [f"{prefill} prefill" for prefill in PREFILLS]
    present = [budget for budget in budgets if budget is not None]
    if not present:
        lengths = contexts(plan)
        axes.plot(lengths, [plan.sequence_bytes(length) / GIB for length in lengths], marker="o")
        axes.set(title="KV of one sequence", xlabel="tokens")
        return
    bottoms = [0.0] * len(present)
    for part, color in _PARTS.items():
        heights = [max(0, getattr(budget, part)) / GIB for budget in present]
        axes.bar(names, heights, bottom=bottoms, color=color, label=part.replace("_", " "))
        bottoms = [below + height for below, height in zip(bottoms, heights, strict=True)]
    axes.set_title("Where the memory goes")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), reverse=True)


def _draw_capacity(plan: Plan, axes: Axes) -> None:
    """Both axes logarithmic: paged against a reservation of the full length."""
    lengths = contexts(plan)
    paged = [plan.sequences(length) for length in lengths]
    axes.set(title="Sequences at once", xlabel="tokens each holds")
    counts = [count for count in paged if count is not None]
    if not counts or not min(counts):
        axes.text(0.5, 0.5, "no pool that holds them", ha="center", transform=axes.transAxes)
        return
    axes.plot(lengths, counts, marker="o", label="paged")
    naive = [counts[-1]] * len(lengths)
    axes.plot(lengths, naive, linestyle="--", label=f"{lengths[-1]:,} tokens reserved for each")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
