"""CPU time that being observed adds to vLLM's scheduler where a pool has several groups of layers.

    PYTHON -m benchmarks.vllm_groups_cost [CHECKOUT]

PYTHON is an interpreter with vLLM. Processes take turns, each with a real scheduler and no model:
bare and observed, with full attention alone and with two windows beside it. CHECKOUT: of another
commit, observed too, to compare one group with. Figures are medians over rounds.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.report import environment
from benchmarks.vllm_scheduler_cost import BLOCKS, STEPS, Peer
from kvscope_events.wire.subscriber import WireSubscriber
from tests.vllm.model import tiny_model

ROUNDS = 7
GROUPS = {"one": "sync", "three": "sync-gemma"}
ROWS: dict[str, tuple[str, tuple[int, ...]]] = {
    "a step of 32 decoding sequences": ("decode", (32, STEPS)),
    "a step of 256 decoding sequences": ("decode", (256, STEPS)),
    "a step that admits a prompt of 16 new blocks": ("prefill", (16, 20)),
    "a step that admits a prompt of 256 new blocks": ("prefill", (256, 20)),
    "a step that finds a prompt of 256 blocks": ("found", (256, 20)),
}


def measure(peers: dict[str, Peer], what: str, arguments: tuple[int, ...]) -> dict[str, float]:
    """By variant; beside them what is added, and ratios, all medians over rounds."""
    rounds: list[dict[str, float]] = []
    for number in range(ROUNDS + 1):
        names = list(peers) if number % 2 else list(peers)[::-1]
        found = {name: peers[name].ask(what, *arguments)["own"] for name in names}
        for groups in GROUPS:
            found[f"added, {groups}"] = found[f"observed, {groups}"] - found[f"bare, {groups}"]
        found["three over one"] = found["added, three"] / found["added, one"]
        if "before, one" in peers:
            before = found["before, one"] - found["bare, one"]
            found["one over before"] = found["added, one"] / before
        if "before, three" in peers:
            before = found["before, three"] - found["bare, three"]
            found["three over before"] = found["added, three"] / before
        if number:  # the first round is warm-up
            rounds.append(found)
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?")
    checkout = parser.parse_args().checkout
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = tiny_model(folder / "model", "llama")
        peers = {}
        variants = [("bare", "bare", None), ("observed", "observed", None)]
        if checkout is not None:
            variants.append(("before", "observed", checkout.resolve()))
        for label, variant, where in variants:
            for groups, mode in GROUPS.items():
                own = folder / f"{label}-{groups}"
                own.mkdir()
                peer = Peer(variant, model, 3 * BLOCKS, own, mode=mode, checkout=where)
                stack.callback(peer.close)
                peers[f"{label}, {groups}"] = peer
        readers = [
            WireSubscriber(f"ipc://{peer.folder}/engine-0.sock")
            for label, peer in peers.items()
            if not label.startswith("bare")
        ]
        for reader in readers:
            stack.callback(reader.close)
        rows = {}
        for row, (what, arguments) in ROWS.items():
            rows[row] = measure(peers, what, arguments)
            cells = "  ".join(f"{key} {value:.2f}" for key, value in rows[row].items())
            print(f"{row:46s} {cells}", file=sys.stderr)
            for reader in readers:
                while reader.take() is not None:
                    pass
    print(json.dumps({"environment": environment(), "microseconds": rows}))


if __name__ == "__main__":
    main()
