"""Score the forecast of exhaustion on simulated loads: `python -m benchmarks.forecast`.

Prints the tables of docs/studies/forecast.md: Brier scores against the two rivals and against the
base rate; how often what was forecast came, by decile; what warnings are worth. KVSCOPE_TRACE names
a public trace to replay as one more load.
"""

import argparse
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean

from benchmarks.forecast.loads import FURTHER, LOADS, Load
from benchmarks.forecast.rivals import WINDOWS
from benchmarks.forecast.scores import (
    EVERY_SECONDS,
    Decile,
    Forecasts,
    deciles,
    joined,
    play,
)
from benchmarks.forecast.trace import trace_load
from exporter.fold.exhaustion import HORIZONS
from monitoring.thresholds import EXHAUSTION_PROBABILITY

ENOUGH_STRETCHES = 100
"""Stretches of a decile, as long as the horizon: chance leaves ±10 points to a forecast of 50 %."""
Run = list[Forecasts]
"""By horizon."""
AHEAD_SECONDS = 30.0
"""Time before an onset at which it must be forecast to count as foreseen."""
LEARNING_SECONDS = 3600.0
"""Start of a run, scored separately: until then few outcomes are known to learn from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0, help="of each load, simulated")
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[21], help="1 is that of the constants"
    )
    parser.add_argument("--load", action="append", help="only this one; may be repeated")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    trace = trace_load()
    every = (*LOADS, *([trace] if trace else []), *(FURTHER if arguments.load else ()))
    loads = [load for load in every if _chosen(load, arguments)]
    if not loads:
        names = ", ".join(load.name for load in (*LOADS, *FURTHER))
        parser.error(f"--load: there are {names} and trace")
    runs = [(load.name, seed) for load in loads for seed in arguments.seed]
    with multiprocessing.Pool(arguments.processes) as pool:
        played = pool.starmap(partial(_play, seconds=arguments.hours * 3600), runs, chunksize=1)
    print_report(loads, dict(zip(runs, played, strict=True)))


def print_report(loads: Sequence[Load], played: Mapping[tuple[str, int], Run]) -> None:
    """played: by the name of the load and its seed."""
    early, late = (
        {load.name: _of_load(load, played, part) for load in loads}
        for part in (Forecasts.until, Forecasts.since)
    )
    print("\n### All loads together\n")
    together = [joined(parts) for parts in zip(*late.values(), strict=True)]
    print_deciles(together)
    print()
    print_calibration(together)
    print_summary(late)
    print("\n### Idle\n")
    print_idle(late)
    for load in loads:
        what = load.what[0].upper() + load.what[1:]
        print(f"\n### {load.name.capitalize()}\n\n{what}; {load.machine.num_blocks:,} blocks.\n")
        print_scores(late[load.name], early[load.name])
        print()
        print_deciles(late[load.name])
    print("\n## The alerts\n")
    print_warnings(late)
    print()
    print_onsets(late)


def _chosen(load: Load, arguments: argparse.Namespace) -> bool:
    return not arguments.load or load.name in arguments.load


def _of_load(
    load: Load,
    played: Mapping[tuple[str, int], Run],
    part: Callable[[Forecasts, float], Forecasts],
) -> Run:
    """That part of the runs with each seed as one run."""
    runs = (
        [part(f, LEARNING_SECONDS) for f in run]
        for (name, _), run in played.items()
        if name == load.name
    )
    return [joined(horizon) for horizon in zip(*runs, strict=True)]


def _play(name: str, seed: int, seconds: float) -> Run:
    trace = trace_load()
    loads = {load.name: load for load in (*LOADS, *FURTHER, *([trace] if trace else []))}
    return play(loads[name], seed, seconds)


def print_scores(results: Run, first_hour: Run) -> None:
    print(
        "| horizon | forecasts | came | kvscope | first hour | usage > 0.9 | predict_linear |",
        end="",
    )
    print(" base rate |\n|---|---|---|---|---|---|---|---|")
    for late, early in zip(results, first_hour, strict=True):
        if not late.came:
            continue
        scores = late.brier()
        first = f"{early.brier()['ours']:.3f}" if early.came else ""
        print(
            f"| {late.horizon} s | {len(late.came):,} | {sum(late.came) / len(late.came):.0%} "
            f"| **{scores['ours']:.3f}** | {first} | {scores['usage']:.3f} "
            f"| {scores['linear']:.3f} | {scores['base']:.3f} |"
        )


def print_deciles(results: Run) -> None:
    columns = [{d.low: d for d in deciles(f.ours, f)} for f in results if f.came]
    print("| forecast | " + " | ".join(f"{f.horizon} s" for f in results if f.came) + " |")
    print("|---|" + "---|" * len(columns))
    for tenth in range(10):
        cells = (_cell(column.get(tenth / 10)) for column in columns)
        print(f"| {10 * tenth} to {10 * tenth + 10} % | {' | '.join(cells)} |")


def print_calibration(results: Run) -> None:
    """Deciles of all loads together that hold enough stretches of time to say anything."""
    for result in results:
        large = [d for d in deciles(result.ours, result) if d.windows >= ENOUGH_STRETCHES]
        near = sum(abs(decile.said - decile.came) <= 0.05 for decile in large)
        print(
            f"At {result.horizon} s {near} of {len(large)} deciles with {ENOUGH_STRETCHES} "
            "stretches or more are within five points."
        )


def print_summary(results: dict[str, Run]) -> None:
    """Print how many cells are calibrated, and where a rival or the base rate does better."""
    cells = [
        cell for parts in results.values() for part in parts for cell in deciles(part.ours, part)
    ]
    for least in (ENOUGH_STRETCHES, 30):
        large = [cell for cell in cells if cell.windows >= least]
        near = sum(abs(cell.said - cell.came) <= 0.05 for cell in large)
        off = sum(cell.is_off for cell in large)
        print(
            f"Of {len(large)} cells of one load with {least} stretches or more, {near} are within "
            f"five points, {off} are off beyond chance."
        )
    lost, unskilled = [], []
    for name, parts in results.items():
        for part in parts:
            scores = part.brier()
            if scores["ours"] >= min(scores["usage"], scores["linear"]):
                lost.append(f"{name} at {part.horizon} s")
            if scores["ours"] > scores["base"]:
                unskilled.append(f"{name} at {part.horizon} s")
    print(f"A rival is as good or better: {', '.join(lost) or 'nowhere'}.")
    print(f"The base rate is better: {', '.join(unskilled) or 'nowhere'}.")


def print_idle(results: dict[str, Run]) -> None:
    """The forecast while nothing runs and nothing waits, where that is 2 % of the time."""
    print("| load | idle | " + " | ".join(f"{horizon} s" for horizon in HORIZONS) + " |")
    print("|---|" + "---|" * (1 + len(HORIZONS)))
    for name, parts in results.items():
        idle = [part.while_idle() for part in parts]
        moments = len(idle[0].came) + len(idle[0].silent)
        share = moments / (len(parts[0].came) + len(idle[0].silent))
        if share >= 0.02:
            print(f"| {name} | {share:.0%} | {' | '.join(map(_idle_cell, idle))} |")


def _idle_cell(idle: Forecasts) -> str:
    if not idle.came:
        return "absent"
    told = len(idle.came) / (len(idle.came) + len(idle.silent))
    return f"{mean(idle.ours):.1%} → {mean(idle.came):.1%} ({max(idle.ours):.0%}; {told:.0%})"


def print_warnings(results: dict[str, Run]) -> None:
    """Print the warnings of the alerts' threshold, and of the rivals."""
    columns = ("load", "60 s", "usage > 0.9", "300 s", "usage > 0.9", "predict_linear, 10 min")
    print(f"| {' | '.join(columns)} |")
    print("|---|" + "---|" * (len(columns) - 1))
    for name, (*_, minute, minutes) in results.items():
        cells = (
            minute.warnings(minute.ours, EXHAUSTION_PROBABILITY),
            minute.warnings(minute.usage, 0.5),
            minutes.warnings(minutes.ours, EXHAUSTION_PROBABILITY),
            minutes.warnings(minutes.usage, 0.5),
            minutes.warnings(minutes.linear[max(WINDOWS)], 0.5),
        )
        texts = (f"{cell[0]:.0%}, {cell[1]:.0%}" if cell else "none" for cell in cells)
        print(f"| {name} | {' | '.join(texts)} |")


def print_onsets(results: dict[str, Run]) -> None:
    """Print how many onsets were foreseen. The share is smaller than that of moments: most
    moments before an exhaustion are in the midst of others."""
    limits = (EXHAUSTION_PROBABILITY, 0.5)
    columns = ["load", "onsets"]
    for limit in limits:
        columns += [f"60 s above {limit}, {AHEAD_SECONDS:.0f} s before", "false alarms an hour"]
    print(f"| {' | '.join(columns)} |")
    print("|---|" + "---|" * (len(columns) - 1))
    for name, (*_, minute, _) in results.items():
        hours = len(minute.times) * EVERY_SECONDS / 3600
        cells = [name, f"{len(minute.onsets)}"]
        for limit in limits:
            cells += [
                f"{minute.foreseen(limit, AHEAD_SECONDS)}",
                f"{minute.false_alarms(limit) / hours:.1f}" if hours else "",
            ]
        print(f"| {' | '.join(cells)} |")


def _cell(decile: Decile | None) -> str:
    if decile is None:
        return ""
    off = " !" if decile.is_off else ""
    return f"{100 * decile.said:.0f} → {100 * decile.came:.0f} ({decile.windows}){off}"


if __name__ == "__main__":
    main()
