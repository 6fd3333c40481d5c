"""CPU time that being observed adds to vLLM's scheduler where a pool has several groups of layers.

    PYTHON -m benchmarks.vllm_groups_cost [CHECKOUT]

PYTHON is an interpreter with vLLM. Two processes, each with a real scheduler and no model: one with
full attention alone, one with two windows beside it. The observer is switched off and on in each,
in turns, so that both halves have the same pool and the same memory. Of each turn the step at the
fifth percentile counts, since other work on the machine only makes steps slower; figures are
medians over turns. CHECKOUT: of another commit that can be switched, observed the same way.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.report import environment
from benchmarks.vllm_scheduler_cost import Peer
from kvscope_events.wire.subscriber import WireSubscriber
from tests.vllm.model import tiny_model

TURNS = 8
BLOCKS = 60_000
GROUPS = {"one": "sync", "three": "sync-gemma"}
ROWS: dict[str, tuple[str, tuple[int, ...]]] = {
    "a step of 32 decoding sequences": ("decode", (32, 64)),
    "a step of 256 decoding sequences": ("decode", (256, 48)),
    "a step that admits a prompt of one block": ("prefill", (1, 30)),
    "a step that admits a prompt of 16 new blocks": ("prefill", (16, 30)),
    "a step that admits a prompt of 256 new blocks": ("prefill", (256, 30)),
    "a step that finds a prompt of 256 blocks": ("found", (256, 30)),
}


def measure(peer: Peer) -> dict[str, tuple[float, float]]:
    """By row, microseconds of a step that is not observed, and what being observed adds."""
    found: dict[str, dict[bool, list[float]]] = {row: {False: [], True: []} for row in ROWS}
    on = True
    for turn in range(TURNS + 1):
        for wanted in (on, not on):
            if wanted != on:
                peer.ask("switch", int(wanted))
                on = wanted
            for row, (what, arguments) in ROWS.items():
                quick = peer.ask(what, *arguments)["quick"]
                if turn:  # the first one is warm-up
                    found[row][on].append(quick)
    bare = {row: median(turns[False]) for row, turns in found.items()}
    return {row: (bare[row], median(turns[True]) - bare[row]) for row, turns in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?")
    checkout = parser.parse_args().checkout
    wheres = {"now": None} | ({} if checkout is None else {"before": checkout.resolve()})
    rows: dict[str, dict[str, float]] = {row: {} for row in ROWS}
    with tempfile.TemporaryDirectory() as name:
        model = tiny_model(Path(name) / "model", "llama")
        for when, where in wheres.items():
            for groups, mode in GROUPS.items():
                folder = Path(name) / f"{when}-{groups}"
                folder.mkdir()
                with ExitStack() as stack:
                    peer = Peer("observed", model, BLOCKS, folder, mode=mode, checkout=where)
                    stack.callback(peer.close)
                    reader = WireSubscriber(f"ipc://{peer.folder}/engine-0.sock")
                    stack.callback(reader.close)
                    for row, (bare, added) in measure(peer).items():
                        rows[row] |= {f"{groups}, {when}": bare, f"{groups}, {when}, added": added}
    for row, cells in rows.items():
        cells["three over one"] = cells["three, now, added"] / cells["one, now, added"]
        text = "  ".join(f"{key} {value:.2f}" for key, value in cells.items())
        print(f"{row:46s} {text}", file=sys.stderr)
    print(json.dumps({"environment": environment(), "microseconds": rows}))


if __name__ == "__main__":
    main()
