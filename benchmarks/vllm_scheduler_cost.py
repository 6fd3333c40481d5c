"""CPU time that being observed adds to vLLM's scheduler, without a model, beside vLLM's own means.

    PYTHON -m benchmarks.vllm_scheduler_cost

PYTHON is an interpreter with vLLM. Four processes take turns, each with a real scheduler, manager
and pool of 16-token blocks: bare, observed, with `--kv-cache-metrics` unsampled, and with the KV
event publisher. The two that publish have a reader. Figures are medians of differences to the bare
round of the same turn.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import zmq

from benchmarks.report import environment
from benchmarks.vllm_peer_scheduler import VARIANTS
from kvscope_events.wire.subscriber import WireSubscriber
from tests.vllm.model import tiny_model

ROUNDS = 21
SEQUENCES = (32, 64, 128, 256)
STEPS = 96
"""Of 16 tokens a block: each sequence gets six blocks in a round."""
PREFILL_BLOCKS = 256
BLOCKS = 20_000
MANY_BLOCKS = 100_000


class Peer:
    """A process with one variant."""

    def __init__(
        self,
        variant: str,
        model: Path,
        blocks: int,
        folder: Path,
        *,
        mode: str = "sync",
        checkout: Path | None = None,
    ) -> None:
        """mode: see `tests.vllm.scheduler.Driver`. checkout: of another commit, with this file."""
        self.folder = folder / variant.replace(" ", "-")
        self.folder.mkdir(mode=0o700)
        command = (sys.executable, "-m", "benchmarks.vllm_peer_scheduler", variant)
        self._process = subprocess.Popen(
            [*command, mode, str(model), str(blocks), str(self.folder)],
            cwd=checkout,
            env=os.environ | ({"PYTHONPATH": str(checkout)} if checkout else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if "VERBOSE" not in os.environ else None,
            text=True,
        )
        self.version = self._answer()["version"]

    def ask(self, what: str, *arguments: int) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "with": arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"peer"'):
                answer: dict[str, Any] = json.loads(line)["peer"]
                return answer
        raise SystemExit("a process ended: has this interpreter a vLLM? VERBOSE=1 shows its log")


class Readers:
    """A reader of each stream, as a sidecar or a router would be."""

    def __init__(self, peers: dict[str, Peer]) -> None:
        observed = peers["observed"].folder / "engine-0.sock"
        self._wire = WireSubscriber(f"ipc://{observed}")
        self._context = zmq.Context()
        self._events = self._context.socket(zmq.SUB)
        self._events.subscribe(b"")
        self._events.connect(f"ipc://{peers['event publisher'].folder}/kv.sock")
        self.received = {"batches": 0, "messages": 0}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._wire.close()
        self._context.destroy(linger=0)

    def _read(self) -> None:
        while not self._ending.wait(0.02):
            while self._wire.take() is not None:
                self.received["batches"] += 1
            while self._events.poll(0):
                self._events.recv_multipart()
                self.received["messages"] += 1


def rounds(peers: dict[str, Peer], what: str, *arguments: int) -> dict[str, dict[str, float]]:
    """By variant and figure: the bare one's median, the others' median difference to it."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for number in range(ROUNDS + 1):
        order = VARIANTS if number % 2 else VARIANTS[::-1]
        for variant in order:
            figures = peers[variant].ask(what, *arguments)
            if number:  # the first round is warm-up
                found[variant].append(figures)
    bare = found["bare"]
    result = {"bare": {figure: median(one[figure] for one in bare) for figure in bare[0]}}
    for variant in VARIANTS[1:]:
        pairs = list(zip(found[variant], bare, strict=True))
        result[variant] = {
            figure: median(one[figure] - other[figure] for one, other in pairs)
            for figure in bare[0]
        }
    return result


def measure(peers: dict[str, Peer]) -> dict[str, dict[str, float]]:
    """Rows of the table, in microseconds, by variant."""
    rows: dict[str, dict[str, float]] = {}

    def add(name: str, figure: Callable[[str], float]) -> None:
        rows[name] = {variant: figure(variant) for variant in VARIANTS}
        cells = "  ".join(f"{variant} {value:9.2f}" for variant, value in rows[name].items())
        print(f"{name:44s}  {cells}", file=sys.stderr)

    least = SEQUENCES[0]
    steps = {}
    for count in SEQUENCES:
        steps[count] = rounds(peers, "decode", count, STEPS)
        add(f"a step of {count} decoding sequences", lambda v, n=count: steps[n][v]["own"])  # type: ignore[misc]
        add(
            f"the same, all threads of the process, {count}",
            lambda v, n=count: steps[n][v]["whole"],  # type: ignore[misc]
        )
    for count in SEQUENCES[1:]:
        add(
            f"a sequence beyond {least}, at {count}",
            lambda v, n=count: (steps[n][v]["own"] - steps[least][v]["own"]) / (n - least),  # type: ignore[misc]
        )
    small = rounds(peers, "prefill", 1, 20)
    large = rounds(peers, "prefill", PREFILL_BLOCKS, 20)
    add("a step that admits a prompt of one block", lambda v: small[v]["own"])
    add(f"a block of a prompt of {PREFILL_BLOCKS}", lambda v: large[v]["own"] / PREFILL_BLOCKS)
    add(
        f"a block beyond the first, of {PREFILL_BLOCKS}",
        lambda v: (large[v]["own"] - small[v]["own"]) / (PREFILL_BLOCKS - 1),
    )
    add("the same block given back", lambda v: large[v]["freed"] / PREFILL_BLOCKS)
    return rows


def memory(model: Path, folder: Path) -> dict[str, float]:
    """MiB of a process whose pool is full, by variant; one process at a time."""
    found = {}
    for variant in VARIANTS:
        peer = Peer(variant, model, MANY_BLOCKS, folder)
        found[variant] = peer.ask("memory")["mib"]
        peer.close()
    return found


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = tiny_model(folder / "model", "llama")
        (folder / "memory").mkdir()
        held = memory(model, folder / "memory")
        peers = {variant: Peer(variant, model, BLOCKS, folder) for variant in VARIANTS}
        for peer in peers.values():
            stack.callback(peer.close)
        readers = Readers(peers)
        stack.callback(readers.close)
        rows = measure(peers)
        version = peers["bare"].version
    print(
        f"| µs of CPU on the scheduler's thread, vLLM {version} | bare | added: "
        + " | ".join(["observed", "residency metrics", "event publisher"])
        + " |"
    )
    print("|---" * 5 + "|")
    for row, cells in rows.items():
        print(f"| {row} | " + " | ".join(f"{cells[v]:.2f}" for v in VARIANTS) + " |")
    added = {variant: held[variant] - held["bare"] for variant in VARIANTS[1:]}
    more = " | ".join(f"{mib:.1f}" for mib in added.values())
    print(f"| MiB at {MANY_BLOCKS:,} blocks, all cached | {held['bare']:.0f} | {more} |")
    facts = {"environment": environment(), "received": readers.received}
    print(json.dumps({**facts, "microseconds": rows, "memory_mib": held}))


if __name__ == "__main__":
    main()
