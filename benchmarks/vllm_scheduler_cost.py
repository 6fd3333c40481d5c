"""CPU time that being observed adds to vLLM's scheduler, without a model, beside vLLM's own means.

    PYTHON -m benchmarks.vllm_scheduler_cost [variants] [groups] [memory]

PYTHON is an interpreter with vLLM. variants: four processes take turns, each with a real scheduler,
manager and pool of 16-token blocks: bare, observed, with `--kv-cache-metrics` unsampled, and with
the KV event publisher; medians of differences to the bare round of the same turn. groups: with full
attention alone, and with two windows beside it, the observer is switched off and on in one process,
and of each turn the step at the fifth percentile counts. memory: of a process whose pool is full.
Streams have a reader.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import zmq

from benchmarks.processes import Peer
from benchmarks.report import alternate, report
from benchmarks.vllm_peer_scheduler import VARIANTS
from kvscope_events.wire.subscriber import WireSubscriber
from tests.vllm.model import tiny_model

ROUNDS, TURNS = 21, 8
SEQUENCES = (32, 64, 128, 256)
STEPS = 96
"""Of 16 tokens a block: each sequence gets six blocks in a round."""
PREFILL_BLOCKS = 256
BLOCKS = 20_000
MANY_BLOCKS, GROUPED_BLOCKS = 100_000, 60_000
GROUPS = {"one": "sync", "three": "sync-gemma"}
GROUP_ROWS: dict[str, tuple[str, tuple[int, ...]]] = {
    "a step of 32 decoding sequences": ("decode", (32, 64)),
    "a step of 256 decoding sequences": ("decode", (256, 48)),
    "a step that admits a prompt of one block": ("prefill", (1, 30)),
    "a step that admits a prompt of 16 new blocks": ("prefill", (16, 30)),
    "a step that admits a prompt of 256 new blocks": ("prefill", (256, 30)),
    "a step that finds a prompt of 256 blocks": ("found", (256, 30)),
}
Figures = dict[str, float]
Rows = dict[str, object]


class Bench:
    """Makes peers, which end with the block."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._model = tiny_model(folder / "model", "llama")

    def peer(self, variant: str, blocks: int, mode: str = "sync") -> Peer:
        """mode: see `tests.vllm.scheduler.Driver`."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
        peer = Peer(
            [
                *(sys.executable, "-m", "benchmarks.vllm_peer_scheduler", variant),
                *(mode, str(self._model), str(blocks), str(folder)),
            ],
            errors=None if "VERBOSE" in os.environ else subprocess.DEVNULL,
        )
        self._stack.callback(peer.close)
        if variant == "observed":
            reader = WireSubscriber(f"ipc://{folder}/engine-0.sock")
            self._stack.callback(reader.close)
        elif variant == "event publisher":
            events: Any = zmq.Context.instance().socket(zmq.SUB)
            self._stack.callback(events.close, 0)
            events.subscribe(b"")
            events.connect(f"ipc://{folder}/kv.sock")
        return peer


def rounds(peers: dict[str, Peer], what: str, *arguments: int) -> dict[str, Figures]:
    """By variant: the bare one's median figures, the others' median difference to it."""
    order = {"what": what, "with": arguments}
    found: dict[str, list[Figures]] = alternate(
        {
            variant: lambda _, peer=peer: peer.ask(order)  # type: ignore[misc]
            for variant, peer in peers.items()
        },
        ROUNDS,
    )
    bare = found.pop("bare")
    result = {"bare": {figure: median(one[figure] for one in bare) for figure in bare[0]}}
    for variant, ones in found.items():
        result[variant] = {
            figure: median(
                one[figure] - other[figure] for one, other in zip(ones, bare, strict=True)
            )
            for figure in bare[0]
        }
    return result


def variants(bench: Bench) -> Rows:
    """Microseconds; the bare one's, and what the others add."""
    peers = {variant: bench.peer(variant, BLOCKS) for variant in VARIANTS}
    rows: Rows = {}

    def add(name: str, figures: Iterable[tuple[str, float]]) -> None:
        rows[name] = dict(figures)

    least = SEQUENCES[0]
    steps = {count: rounds(peers, "decode", count, STEPS) for count in SEQUENCES}
    for count, of in steps.items():
        add(f"a step of {count} decoding sequences", ((v, of[v]["own"]) for v in VARIANTS))
        add(f"the same, all threads, {count}", ((v, of[v]["whole"]) for v in VARIANTS))
        if count != least:
            more = count - least
            each = ((v, (of[v]["own"] - steps[least][v]["own"]) / more) for v in VARIANTS)
            add(f"a sequence beyond {least}, at {count}", each)
    small, large = (rounds(peers, "prefill", n, 20) for n in (1, PREFILL_BLOCKS))
    blocks = PREFILL_BLOCKS
    add("a step that admits a prompt of one block", ((v, small[v]["own"]) for v in VARIANTS))
    add(f"a block of a prompt of {blocks}", ((v, large[v]["own"] / blocks) for v in VARIANTS))
    add(
        f"a block beyond the first, of {blocks}",
        ((v, (large[v]["own"] - small[v]["own"]) / (blocks - 1)) for v in VARIANTS),
    )
    add("the same block given back", ((v, large[v]["freed"] / blocks) for v in VARIANTS))
    return rows


def groups(bench: Bench) -> Rows:
    """Microseconds of a step that is not observed, and what being observed adds."""
    rows: dict[str, Figures] = {row: {} for row in GROUP_ROWS}
    for name, mode in GROUPS.items():
        peer = bench.peer("observed", GROUPED_BLOCKS, mode)

        def turn(on: bool, peer: Peer = peer) -> Figures:
            peer.ask({"what": "switch", "with": (int(on),)})
            return {
                row: peer.ask({"what": what, "with": arguments})["quick"]
                for row, (what, arguments) in GROUP_ROWS.items()
            }

        sides = {"bare": lambda _, turn=turn: turn(False), "on": lambda _, turn=turn: turn(True)}
        found = alternate(sides, TURNS)
        for row in GROUP_ROWS:
            bare, on = (median(turn[row] for turn in found[side]) for side in ("bare", "on"))
            rows[row] |= {name: bare, f"{name}, added": on - bare}
    for figures in rows.values():
        figures["three over one"] = figures["three, added"] / figures["one, added"]
    return {f"groups: {row}": figures for row, figures in rows.items()}


def memory(bench: Bench) -> Rows:
    """One process at a time."""
    held = {}
    for variant in VARIANTS:
        peer = bench.peer(variant, MANY_BLOCKS)
        held[variant] = peer.ask({"what": "memory", "with": ()})["mib"]
        peer.close()
    return {f"MiB at {MANY_BLOCKS:,} blocks, all cached": held}


PARTS = {"variants": variants, "groups": groups, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    rows: Rows = {}
    for part in parser.parse_args().parts or PARTS:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            rows |= PARTS[part](Bench(Path(name), stack))
    report("vllm_scheduler_cost", rows)


if __name__ == "__main__":
    main()
