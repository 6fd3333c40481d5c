"""A vLLM's throughput and the time between its tokens, observed over bare, in one process.

The observer is taken away and put back from batch to batch. A third batch of each round is bare as
well: what it differs from the other bare one by is what the comparison scatters.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from statistics import median, quantiles

import httpx

from benchmarks.on_a_gpu.nvml import beside, beside_torch, components, read
from benchmarks.on_a_gpu.report import Figure, Parts
from benchmarks.on_a_gpu.vllm import Setting, wait_for_the_card
from tools.checks.throughput import Observed, running

SIDES = ("observed", "bare", "bare again")
ORDERS = tuple(permutations(SIDES))
TARGET = 0.98
TARGET_GAP = 1.05
SETTLE_SECONDS = 6.0
"""Longer than the slowest source takes for a sample: processes, every five seconds."""
MILLISECOND = 1e-3


def measure(setting: Setting, out: Path) -> None:
    """Writes what is known so far to `out` after each part."""
    parts = Parts(out / "vllm-pairs.json")
    wait_for_the_card()
    log = out / "vllm-pairs-server.log"
    with (
        tempfile.TemporaryDirectory(prefix="kvscope-") as folder,
        running(
            "vllm",
            "observer",
            setting.python,
            setting.model,
            Path(folder),
            engine=setting.engine,
            log=log,
        ) as peer,
    ):
        print("started", flush=True)
        parts.measure("memory", lambda: memory(peer, setting, out))
        parts.measure("steps", lambda: decode(peer, setting))
        parts.measure("pairs", lambda: compare(peer, setting, out))
    parts.end()


def memory(peer: Observed, setting: Setting, out: Path) -> Iterator[list[Figure]]:
    """Before the first batch: the page beside torch, then beside NVML."""
    time.sleep(SETTLE_SECONDS)
    page = httpx.get(peer.page, timeout=30).text
    (out / "vllm-pairs-page.txt").write_text(page)
    torch = peer.memory()
    said = {"torch": torch, "page": components(page)}
    kept = out / "vllm-pairs-memory.json"
    kept.write_text(json.dumps(said, indent=1))
    found = [_named(figure) for figure in beside_torch(page, torch)]
    yield found
    if setting.engine is not None:
        nvml = read()
        kept.write_text(json.dumps(said | {"nvml": nvml._asdict()}, indent=1))
        yield found + [_named(figure) for figure in beside(page, nvml)]


def decode(peer: Observed, setting: Setting) -> Iterator[list[Figure]]:
    """Milliseconds of a bare step, as of our engine's in section `step`; after each size."""
    found = []
    for sequences in setting.decoded:
        for number in range(2):  # the first warms up
            tokens = {"prompt": setting.context, "output": setting.steps}
            peer.rates(False, sequences, 7 + number, **tokens)
        step = median(peer.gaps) / MILLISECOND
        found.append(Figure(f"8B decode step of {sequences}, vLLM", step, "ms"))
        print(found[-1], flush=True)
        yield found


class Compared:
    """Batches of one size, round after round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[dict[str, float]]] = defaultdict(list)
        """By side: output tokens a second, of elapsed and of CPU time."""
        self.gaps: dict[str, list[list[float]]] = defaultdict(list)
        """By side: seconds between the steps of each batch."""

    def ratio(self, side: str, kind: str) -> float:
        """The side's tokens a second over those of the bare one, by rounds, the median."""
        both = zip(self.rates[side], self.rates["bare"], strict=True)
        return median(own[kind] / bare[kind] for own, bare in both)

    def gap_ratio(self, side: str, percent: int) -> float:
        """That of a percentile of the gaps of all rounds."""
        own, bare = (quantiles(self._all_gaps(each), n=100) for each in (side, "bare"))
        return own[percent - 1] / bare[percent - 1]

    def _all_gaps(self, side: str) -> list[float]:
        return [gap for batch in self.gaps[side] for gap in batch]

    def figures(self, sequences: int) -> list[Figure]:
        where = f"{sequences} sequences, {len(self.rates['bare'])} pairs"
        found = []
        for side, target in (("observed", TARGET), ("bare again", None)):
            named = f"vLLM {side} over bare, {where}"
            rate = self.ratio(side, "elapsed")
            found.append(Figure(f"{named}: output tokens/s", rate, "", target, "higher"))
            if not self._all_gaps("bare"):  # its steps never served all sequences at once
                continue
            for percent in (50, 99):
                limit = None if target is None else TARGET_GAP
                ratio = self.gap_ratio(side, percent)
                found.append(Figure(f"{named}: p{percent} gap of tokens", ratio, "", limit))
        tokens = median(rates["elapsed"] for rates in self.rates["observed"])
        found.append(Figure(f"vLLM observed, {where}: output", tokens, "tokens/s"))
        return found


def compare(peer: Observed, setting: Setting, out: Path) -> Iterator[list[Figure]]:
    """The figures after each round; what was measured goes to `out` as well."""
    sizes = {sequences: Compared() for sequences in setting.batches}
    tokens = {"output": setting.output}
    for sequences in sizes:
        for on in (True, False):  # warms up
            peer.rates(on, sequences, sequences, **tokens)
    until = time.monotonic() + setting.compare_seconds
    for number in range(setting.rounds):
        if time.monotonic() > until:
            return
        for sequences, compared in sizes.items():
            for side in ORDERS[number % len(ORDERS)]:
                seed = 1000 * sequences + number
                rates = peer.rates(side == "observed", sequences, seed, **tokens)
                compared.rates[side].append(rates)
                compared.gaps[side].append(peer.gaps)
        measured = {n: {"rates": c.rates, "gaps": c.gaps} for n, c in sizes.items()}
        (out / "vllm-pairs-batches.json").write_text(json.dumps(measured))
        print(f"round {number + 1} of {setting.rounds}", flush=True)
        yield [figure for n, compared in sizes.items() for figure in compared.figures(n)]


def _named(figure: Figure) -> Figure:
    return figure._replace(name=f"vLLM in one process: {figure.name}")
