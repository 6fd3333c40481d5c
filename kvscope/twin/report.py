"""A comparison of options as a table for people and as a document."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvscope.twin.comparison import FIGURES, LATENCIES, Comparison, Figures, Range
from kvscope.twin.step_time import TERMS
from kvscope.whatif.report import frame
from kvscope_events.printable import printable
from kvscope_exporter import words

NOT_MODELLED = (
    "another card, model or number of them: the step time is that of the recorded machine",
    "clients that leave earlier, or come more often, when answers come faster",
    "time in the front end besides its median, grammars, images and the limits of adapters",
)
_TITLES = {name: f"{name[:-4].upper()} {name[-3:]}" for name in LATENCIES} | {
    "tokens_per_second": "tokens/s",
    "preemptions": "preemptions",
    "hit_ratio": "hit ratio",
}
_SAME = "≈ "
"""Before a figure that is within the twin's own error of what it was."""


def document(files: Sequence[Path], found: Comparison) -> dict[str, Any]:
    """The whole comparison; times in seconds, unknown values are null."""
    traffic, fit = found.traffic, found.step_time
    hello = traffic.hello
    assert hello is not None
    return {
        "file": str(files[0]),
        "kind": "twin",
        "server": f"{hello.server} {hello.server_version}",
        "scheduler": found.scheduler,
        "seconds": traffic.seconds,
        "calls": len(traffic.calls),
        "steps": len(traffic.steps),
        "steps_alike": found.alike,
        "first_difference": found.first_difference,
        "step_time": {
            "r2": fit.r2,
            "median_error": fit.error,
            "seconds": {"step": fit.constant, **dict(zip(TERMS, fit.terms, strict=True))},
            "chunks_that_were_admissions": fit.together,
        },
        "clients_wait": found.clients.is_closed,
        "calls_after_an_end": found.clients.following,
        "calls_replayed_by_think_time": found.clients.followers,
        "measured": found.measured,
        "predicted": _document(found.predicted),
        "error": {name: found.error(name) for name in FIGURES},
        "settings": [
            {
                "set": outcome.setting.changes,
                "predicted": _document(outcome.figures),
                "within_error": sorted(outcome.within_error),
                "notes": outcome.notes,
            }
            for outcome in found.rows
        ],
        "doubts": found.doubts,
        "not_modelled": list(NOT_MODELLED),
    }


def _document(figures: Figures) -> dict[str, dict[str, float] | None]:
    return {name: one._asdict() if one else None for name, one in figures.items()}


def show(console: Console, files: Sequence[Path], found: Comparison) -> None:
    """Show the self-check, then the table."""
    table = Table()
    for title in ("", "measured", "predicted", *(each.setting.name for each in found.rows)):
        table.add_column(printable(title), justify="right" if title else "left", overflow="fold")
    for name in FIGURES:
        cells = [_told(name, found.measured[name]), _range(name, found.predicted[name])]
        for outcome in found.rows:
            same = _SAME if name in outcome.within_error else ""
            cells.append(same + _range(name, outcome.figures[name]))
        table.add_row(_TITLES[name], *cells)
    legend = Text(f"{_SAME}means no difference that this twin can tell.", "dim")
    notes = [*found.doubts, *(note for outcome in found.rows for note in outcome.notes)]
    content = (Text(_self_check(found)), table, legend)
    frame(console, _title(files[0], found), content, None, notes, NOT_MODELLED)


def _title(file: Path, found: Comparison) -> str:
    traffic, fit = found.traffic, found.step_time
    assert traffic.hello is not None
    lines = [
        f"{file.name}: {words.seconds(traffic.seconds)}, {len(traffic.calls):,} calls of "
        f"{traffic.hello.server} {traffic.hello.server_version}",
        f"{found.alike:,} of {len(traffic.steps):,} steps are decided alike by "
        f"{found.scheduler}; the step time fits to {100 * fit.error:.0f} % (R² {fit.r2:.2f})",
    ]
    if found.first_difference is not None:
        lines.append(f"the first that differs is {found.first_difference}")
    if found.clients.is_closed:
        lines.append(
            f"clients wait for their answers ({100 * found.clients.following:.0f} % of the calls "
            "follow an end within 0.1 s): they are replayed by the time that their clients think"
        )
    return "\n".join(lines)


def _self_check(found: Comparison) -> str:
    parts = []
    for name in FIGURES:
        error = found.error(name)
        if name == "preemptions":
            predicted = found.predicted[name]
            if predicted is not None:
                parts.append(f"preemptions {found.measured[name]} → {predicted.middle:.0f}")
        elif error is not None:
            parts.append(f"{_TITLES[name]} {100 * error:+.0f} %")
    return f"Self-check: {', '.join(parts)}. Smaller changes mean nothing."


def _range(name: str, one: Range | None) -> str:
    if one is None:
        return "unknown"
    low, high = _told(name, one.low), _told(name, one.high)
    middle = _told(name, one.middle)
    return middle if low == high else f"{middle} ({low} to {high})"


def _told(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if name in LATENCIES:
        return words.seconds(value)
    if name == "hit_ratio":
        return words.share(value, 1)
    return f"{value:,.0f}"
