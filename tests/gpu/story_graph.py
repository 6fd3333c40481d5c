"""Draws docs/images/oom.svg from the table of docs/studies/oom.md.

    python -m tests.gpu.story_graph

Needs matplotlib: pip install '.[plot]'.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINES = {
    "free": "tab:blue",
    "other_processes": "tab:orange",
    "headroom": "tab:green",
    "activation peak": "tab:red",
}


def read_stages(page: str) -> list[dict[str, str]]:
    """The rows of the first table after the marker, by column."""
    table = page.split("<!-- story: begin -->\n")[1].split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [dict(zip(head, row, strict=True)) for row in rows]


def read_signals(page: str) -> dict[str, str]:
    """The second table: signal to the stage at which it speaks first."""
    table = page.split("<!-- story: begin -->\n")[1].split("<!-- story: end -->")[0]
    rows = [line.strip("|").split("|") for line in table.split("\n\n")[1].splitlines()[2:]]
    return {signal.strip(): stage.strip() for signal, stage in rows}


def main() -> None:
    page = (DOCS / "studies" / "oom.md").read_text()
    stages = read_stages(page)
    numbers = range(1, len(stages) + 1)
    figure, axes = plt.subplots(figsize=(8, 4))
    for column, color in LINES.items():
        values = [float(stage[column]) for stage in stages]
        style = "--" if column == "activation peak" else "-"
        axes.step(numbers, values, style, where="mid", label=column, color=color)
    for signal, stage in read_signals(page).items():
        if stage != "never":
            at = int(stage)
            axes.axvline(at, color="gray", linewidth=0.8, linestyle=":")
            axes.text(
                at, 23.5 + 1.6 * (at - 4), signal, ha="center", fontsize=9, backgroundcolor="w"
            )
    axes.set_xlim(0.8, len(stages) + 0.7)
    axes.set_xticks(list(numbers))
    axes.set_xlabel("stage")
    axes.set_ylabel("GiB")
    axes.set_ylim(0, 30)
    axes.legend(loc="center left")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    mpl.rcParams |= {"svg.hashsalt": "kvscope", "svg.fonttype": "none"}
    figure.savefig(DOCS / "images" / "oom.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
