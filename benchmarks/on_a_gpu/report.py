"""A figure with its target, and the table of all."""

from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """One thing that was measured."""

    name: str
    value: float
    unit: str
    target: float | None = None
    """None: shown for comparison."""
    better: Literal["higher", "lower"] = "lower"

    @property
    def met(self) -> bool | None:
        """None: there is no target."""
        if self.target is None:
            return None
        if self.better == "higher":
            return self.value >= self.target
        return self.value <= self.target


def table(figures: list[Figure]) -> str:
    """As Markdown."""
    lines = ["| what | measured | target | met |", "|---|---|---|---|"]
    for figure in figures:
        sign = "≥" if figure.better == "higher" else "≤"
        target = "" if figure.target is None else f"{sign} {figure.target:g}"
        met = {True: "yes", False: "**no**", None: ""}[figure.met]
        lines.append(f"| {figure.name} | {figure.value:.4g} {figure.unit} | {target} | {met} |")
    return "\n".join(lines) + "\n"
