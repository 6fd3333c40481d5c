"""Score the forecast of exhaustion on simulated loads: `python -m benchmarks.forecast`.

Prints the tables of docs/studies/forecast.md: Brier scores against usage above 0.9 and against the
base rate, and how often what was forecast came, by decile.
"""

import argparse
from bisect import bisect_right
from random import Random
from statistics import mean
from typing import NamedTuple

from benchmarks.forecast.loads import LOADS, Load
from benchmarks.forecast.simulator import SECOND, Simulator
from kvscope_events.events import AllocationFailed, StepCompleted
from kvscope_exporter.state.exhaustion import HORIZONS, Exhaustion

EVERY_SECONDS = 5.0
"""Between two forecasts that are scored."""
LEARNING_SECONDS = 3600.0
"""Start of a run, scored separately: until then few outcomes are known to learn from."""


class Scored(NamedTuple):
    """A forecast, what people have instead, and what came."""

    at: float
    ours: float
    usage: float
    """1 if usage is above 0.9, else 0."""
    came: float


def play(load: Load, seed: int, seconds: float) -> dict[int, list[Scored]]:
    """One run of a load from an empty engine, by horizon; forecasts are asked for by the clock."""
    fold = Exhaustion()
    exhausted: list[float] = []
    asked: list[tuple[float, float, dict[int, float]]] = []
    due = usage = 0.0
    simulator = Simulator(load.num_blocks, load.max_num_seqs)
    for batch in simulator.play(load.calls(Random(seed), seconds), seconds):
        now = batch.time_ns / SECOND
        while due < now:  # what is known before this batch
            asked.append((due, float(usage > 0.9), fold.probabilities))
            due += EVERY_SECONDS
        fold.on_batch(batch)
        for event in batch.events:
            if type(event) is AllocationFailed:
                exhausted.append(now)
            elif type(event) is StepCompleted:
                usage = event.active_blocks / load.num_blocks
    return {
        horizon: [
            Scored(at, said[horizon], above, float(_within(exhausted, at, horizon)))
            for at, above, said in asked
            if said and at + horizon <= seconds
        ]
        for horizon in HORIZONS
    }


def _within(exhausted: list[float], at: float, horizon: int) -> bool:
    after = bisect_right(exhausted, at)
    return after < len(exhausted) and exhausted[after] <= at + horizon


def brier(scored: list[Scored]) -> tuple[float, float, float]:
    """Mean squared errors of ours, of the threshold, and of always forecasting the base rate."""
    rate = mean(s.came for s in scored)
    ours = mean((s.ours - s.came) ** 2 for s in scored)
    return ours, mean((s.usage - s.came) ** 2 for s in scored), rate * (1 - rate)


def deciles(scored: list[Scored]) -> list[list[Scored]]:
    return [[s for s in scored if min(9, int(s.ours * 10)) == tenth] for tenth in range(10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0, help="of each load, simulated")
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[21, 22, 23], help="1 is that of the weights"
    )
    parser.add_argument("--load", choices=LOADS, action="append", help="only this one")
    arguments = parser.parse_args()
    print("| load | horizon | forecasts | came | kvscope | first hour | usage > 0.9 | base rate |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    together: dict[int, list[Scored]] = {horizon: [] for horizon in HORIZONS}
    for name in arguments.load or LOADS:
        runs = [play(LOADS[name], seed, arguments.hours * 3600) for seed in arguments.seed]
        for horizon in HORIZONS:
            scored = [s for run in runs for s in run[horizon]]
            first = [s for s in scored if s.at < LEARNING_SECONDS]
            later = [s for s in scored if s.at >= LEARNING_SECONDS]
            together[horizon] += later
            ours, usage, base = brier(later)
            print(
                f"| {name} | {horizon} s | {len(later):,} | {mean(s.came for s in later):.0%} "
                f"| **{ours:.4f}** | {brier(first)[0]:.4f} | {usage:.4f} | {base:.4f} |",
                flush=True,
            )
    print(f"\n| forecast | {' | '.join(f'{horizon} s' for horizon in HORIZONS)} |")
    print(f"|---|{'---|' * len(HORIZONS)}")
    columns = [deciles(scored) for scored in together.values()]
    for tenth, cells in enumerate(zip(*columns, strict=True)):
        texts = (
            f"{mean(s.ours for s in cell):.0%} → {mean(s.came for s in cell):.0%} ({len(cell)})"
            if cell
            else ""
            for cell in cells
        )
        print(f"| {10 * tenth} to {10 * tenth + 10} % | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
