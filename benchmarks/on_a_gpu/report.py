"""A figure with its target, and the table of all."""

import json
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
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


class Parts:
    """Figures of a section whose parts fail one by one; written after each part."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, list[Figure]] = {}
        self._failed: list[str] = []

    def measure(self, name: str, results: Callable[[], Iterable[list[Figure]]]) -> None:
        """results: the figures, each time with more behind them."""
        print(f"{name}:", flush=True)
        try:
            for figures in results():
                self._found[name] = figures
                write(self._path, [figure for part in self._found.values() for figure in part])
        except Exception:
            traceback.print_exc()
            self._failed.append(name)

    def end(self) -> None:
        """Raises SystemExit if a part has failed."""
        if self._failed:
            raise SystemExit(f"failed: {', '.join(self._failed)}")


def write(path: Path, figures: list[Figure]) -> None:
    """For the report; replaces what was known before."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps([figure._asdict() for figure in figures]))
    draft.replace(path)
