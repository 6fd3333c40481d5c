"""Predicted hits of other pool sizes against real runs with these pools: our engine, and a vLLM.

    python -m tools.checks.whatif_check [--vllm PYTHON] [--requests N] [--seeds N]

One run with a pool of C blocks is recorded, and `kvscope whatif` computes from the recording what
C/2 and 2C blocks would have found. Then both are run, with the same seed. --vllm names the Python
of a vLLM (scripts/vllm-env); without it only our engine runs. Prints a line for each pool; exit
status 1 if a prediction is off by more than its limit.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kvscope.whatif.batches import Batches
from kvscope.whatif.findings import Findings
from kvscope.whatif.recording import curve_of_recording
from kvscope_events.events import PrefixLookup, RequestPreempted, StepCompleted
from tests.playback.simulated import write_batches
from tests.support.own_engine import OwnEngine
from tests.support.prefix_trees import Load, drive
from tests.support.process import ROOT, kvscope
from tests.vllm.model import tiny_model
from tools.checks.whatif_peer import BLOCK_SIZE

SCALES = (0.5, 2.0)
OWN_LIMIT = 0.005
VLLM_LIMIT = 0.01
"""Largest error of the hit ratio that passes."""
OWN_BLOCKS = 400
VLLM_BLOCKS = 180
LOAD = Load(requests=1200, conversations=16)
"""The requests that run at once need less than half of OWN_BLOCKS, and of VLLM_BLOCKS."""
_PEER_SECONDS = 600.0


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


def vllm_run(python: Path, model: Path, load: Load) -> Callable[[int, Path], None]:
    """A vLLM with the observer, recorded by `kvscope record` as a user would."""

    def record(blocks: int, file: Path) -> None:
        # Not below the file's folder, whose path may be too long for sockets.
        with tempfile.TemporaryDirectory(prefix="kvscope-") as sockets:
            endpoint = f"ipc://{sockets}/engine-0.sock"
            with kvscope("record", endpoint, str(file)) as recording:
                counted = _serve(python, model, blocks + 1, load, sockets)  # one is reserved
                recording.send(signal.SIGINT)
                assert recording.wait() == 0, recording.text
        run = read(file)
        assert counted["hit_tokens"] == run.hit_blocks * BLOCK_SIZE, (counted, run)
        assert counted["preemptions"] == run.preemptions, (counted, run)

    return record


def _serve(python: Path, model: Path, blocks: int, load: Load, sockets: str) -> dict[str, int]:
    """vLLM's own counts."""
    done = subprocess.run(
        [
            *(str(python), "-m", "tools.checks.whatif_peer", str(model), str(blocks)),
            json.dumps(asdict(load)),
        ],
        cwd=sockets,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KVSCOPE_OBSERVER_DIR": sockets},
        capture_output=True,
        text=True,
        timeout=_PEER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counted: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counted


def _print(name: str, seed: int, blocks: int, comparisons: Sequence[Comparison]) -> None:
    for row in comparisons:
        run = row.run
        print(
            f"{name:8} seed {seed}  {row.blocks:5} blocks ({row.blocks / blocks:g} x)  "
            f"predicted {row.predicted:.4f}  real {run.hit_ratio:.4f}  "
            f"difference {100 * row.error:+.3f} points  "
            f"({run.hit_blocks:,} of {run.queried_blocks:,} blocks; at most "
            f"{run.most_active} active, {run.preemptions} preemptions)",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", type=Path, metavar="PYTHON")
    parser.add_argument("--requests", type=int, default=LOAD.requests)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    largest = 0.0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(given.seeds):
            load = replace(LOAD, requests=given.requests, seed=seed)
            folder = Path(name) / str(seed)
            folder.mkdir()
            runs = [("kvscope", own_run(load), OWN_BLOCKS, OWN_LIMIT)]
            if given.vllm is not None:
                model = tiny_model(folder / "model", "llama")
                runs.append(("vLLM", vllm_run(given.vllm, model, load), VLLM_BLOCKS, VLLM_LIMIT))
            for server, record, blocks, limit in runs:
                place = folder / server
                place.mkdir()
                _, comparisons = compare(record, blocks, SCALES, place)
                _print(server, seed, blocks, comparisons)
                largest = max(largest, *(abs(row.error) / limit for row in comparisons))
    return int(largest > 1)


if __name__ == "__main__":
    sys.exit(main())
