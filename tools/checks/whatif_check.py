"""Predicted hits of other pool sizes against real runs of our engine with these pools.

    python -m tools.checks.whatif_check [--requests N] [--seeds N]

One run with a pool of C blocks is recorded, and `kvscope whatif` computes from the recording what
C/2 and 2C blocks would have found. Then both are run, with the same seed. Prints a line for each
pool; exit status 1 if a prediction is off by more than its limit. Of a vLLM's own scheduler and
pool tests/vllm/test_whatif.py does the same.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvscope.whatif.batches import Batches
from kvscope.whatif.findings import Findings
from kvscope.whatif.recording import curve_of_recording
from kvscope_events.events import PrefixLookup, RequestPreempted, StepCompleted
from tests.replay.simulated import write_batches
from tests.support.own_engine import OwnEngine
from tests.support.prefix_trees import Load, drive

SCALES = (0.5, 2.0)
OWN_LIMIT = 0.005
VLLM_LIMIT = 0.01
"""Largest error of the hit ratio that passes."""
OWN_BLOCKS = 400
LOAD = Load(requests=1200, conversations=16)
"""The requests that run at once need less than half of OWN_BLOCKS."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of a single run."""

    hit_blocks: int
    queried_blocks: int
    most_active: int
    """Blocks that were referenced at once, at the end of a step."""
    preemptions: int

    @property
    def hit_ratio(self) -> float:
        return self.hit_blocks / self.queried_blocks


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One pool size: predicted from the observed run, and really run."""

    blocks: int
    predicted: float
    run: Run

    @property
    def error(self) -> float:
        return self.predicted - self.run.hit_ratio


def read(file: Path) -> Run:
    """Count what the engine reported of its own first lookups."""
    hits = queried = active = preemptions = 0
    recording = Batches(file)
    for _, batch, lost in recording:
        assert not lost
        for event in batch.events:
            if isinstance(event, PrefixLookup) and not event.resumed:
                hits += event.hit_blocks
                queried += len(event.hashes)
            elif isinstance(event, StepCompleted):
                active = max(active, event.active_blocks)
            elif isinstance(event, RequestPreempted):
                preemptions += 1
    assert recording.problem is None
    return Run(hit_blocks=hits, queried_blocks=queried, most_active=active, preemptions=preemptions)


def compare(
    record: Callable[[int, Path], None], blocks: int, scales: Sequence[float], folder: Path
) -> tuple[Findings, list[Comparison]]:
    """Observe `blocks`, predict its multiples, run them. `record` writes the events of one run."""
    observed = folder / f"{blocks}.kvsr"
    record(blocks, observed)
    sizes = [int(blocks * scale) for scale in scales]
    found = curve_of_recording(observed, [*sizes, blocks])
    ratios = {point.capacity_blocks: point.hit_ratio for point in found.points}
    comparisons = []
    for size in (blocks, *sizes):
        file = folder / f"{size}.kvsr"
        if size != blocks:
            record(size, file)
        predicted = ratios[size]
        assert predicted is not None
        comparisons.append(Comparison(blocks=size, predicted=predicted, run=read(file)))
    return found, comparisons


def own_run(load: Load) -> Callable[[int, Path], None]:
    """Our engine with the demo model."""

    def record(blocks: int, file: Path) -> None:
        engine = OwnEngine(blocks, load.longest, load.clients)
        drive(engine, load)
        write_batches(file, engine.batches())

    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=LOAD.requests)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    largest = 0.0
    for seed in range(given.seeds):
        load = replace(LOAD, requests=given.requests, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            _, comparisons = compare(own_run(load), OWN_BLOCKS, SCALES, Path(folder))
        for row in comparisons:
            print(
                f"seed {seed}  {row.blocks:5} blocks  predicted {row.predicted:.4f}  "
                f"real {row.run.hit_ratio:.4f}  difference {100 * row.error:+.3f} points  "
                f"({row.run.most_active} active at most, {row.run.preemptions} preemptions)",
                flush=True,
            )
            largest = max(largest, abs(row.error))
    return int(largest > OWN_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
