"""Routers in front of real replicas: predicted from one router's run, then really run.

    python -m tools.checks.fleet_routing TRACE [--server kvscope|vllm] [--replicas N] [--blocks N]
                                         [--requests N] [--most-blocks N] [--python P]

The first requests of a trace in Mooncake's format, each block shortened to one of the server's, are
sent to the replicas under round robin while `kvscope fleet` follows them; then again, as other
content, by the hash of their beginning and by the longest match. Prints what the fleet says is
found on the best replica, what the replay of `kvscope whatif --replicas` predicts, and what the
servers themselves count. Exit status 1 if a prediction is off by more than two points, or if the
fleet's sums are not those of the servers.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import httpx

from kvscope.mooncake import TRACE_BLOCK_TOKENS, read_trace
from tests.support.pages import sample
from tests.support.process import ROOT, kvscope
from tests.support.waiting import wait_for
from tests.vllm.counters import total
from tests.vllm.model import tiny_model
from tests.vllm.observed import observed

POLICIES = ("round-robin", "prefix-hash", "kv-aware")
LIMIT = 0.02
"""Largest error of a share of the blocks asked for."""
AT_ONCE = 4
BLOCK_TOKENS = {"kvscope": 16, "vllm": 32}
STEPS = ("own", "best", "anywhere", "seen", "asked")
Paths = Sequence[Sequence[int]]
"""The block ids of every request."""


@dataclass
class Replica:
    """url: of its API. page: of its sidecar."""

    url: str
    page: str
    model: str
    likely: "OrderedDict[int, None]" = field(default_factory=OrderedDict)
    """Blocks that the router sent there, the last ones last."""
    in_flight: int = 0


class Router:
    """As a router would that knows its own decisions alone; called by one thread."""

    def __init__(self, policy: str, replicas: Sequence[Replica], blocks: int) -> None:
        self._policy = policy
        self._replicas = replicas
        self._blocks = blocks
        self._placed = 0

    def place(self, path: Sequence[int]) -> Replica:
        replica = self._replicas[self._choice(path)]
        for block in reversed(path):
            replica.likely[block] = None
            replica.likely.move_to_end(block)
        while len(replica.likely) > self._blocks:
            replica.likely.popitem(last=False)
        self._placed += 1
        return replica

    def _choice(self, path: Sequence[int]) -> int:
        number = len(self._replicas)
        if self._policy == "round-robin":
            return self._placed % number
        if self._policy == "prefix-hash":
            digest = sha256(json.dumps(path[:2]).encode()).digest()
            return int.from_bytes(digest[:8], "big") % number
        busiest = max(1, *(replica.in_flight for replica in self._replicas))

        def worth(index: int) -> float:
            replica = self._replicas[index]
            matched = sum(1 for _ in takewhile(replica.likely.__contains__, path))
            return matched / len(path) - 0.5 * replica.in_flight / busiest

        return max(range(number), key=lambda index: (worth(index), -index))


def paths_of(trace: Path, requests: int, most_blocks: int) -> list[list[int]]:
    """Full blocks of the first requests, without those longer than `most_blocks`."""
    paths = (
        request.hash_ids[: request.input_length // TRACE_BLOCK_TOKENS]
        for request in read_trace(trace)
    )
    return list(islice((path for path in paths if 0 < len(path) <= most_blocks), requests))


@contextmanager
def serving(kind: str, number: int, blocks: int, python: Path) -> Iterator[list[Replica]]:
    """The replicas, one after the other: each start takes both cores."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder, ExitStack() as stack:
        replicas = []
        model = tiny_model(Path(folder) / "model", "llama") if kind == "vllm" else None
        for index in range(number):
            if model is None:
                server = stack.enter_context(
                    kvscope(
                        *("serve", "demo", "--port", "0", "--no-gpu"),
                        *("--num-gpu-blocks-override", str(blocks)),
                    )
                )
                url = server.find(r"serving demo at (\S+)/v1")
                replicas.append(Replica(url, url, "demo"))
            else:
                own = Path(folder) / f"{index}"
                own.mkdir()
                # One of vLLM's blocks is never used.
                options = ("--max-model-len", "4096", "--num-gpu-blocks-override", str(blocks + 1))
                vllm = stack.enter_context(observed(python, model, own, *options, ranks=0))
                replicas.append(Replica(vllm.server.url, vllm.url, "tiny"))
            print(f"replica {index + 1} of {number} serves", flush=True)
        yield replicas


def send(replicas: Sequence[Replica], router: Router, paths: Paths, tokens: int, salt: int) -> None:
    """Every path as a prompt, AT_ONCE at a time. salt: makes other content of the same ids."""
    with ThreadPoolExecutor(AT_ONCE) as pool, httpx.Client(timeout=300) as client:
        waiting: list[tuple[Replica, Any]] = []
        for path in paths:
            while len(waiting) >= AT_ONCE:
                replica, answer = waiting.pop(0)
                answer.result().raise_for_status()
                replica.in_flight -= 1
            replica = router.place(path)
            replica.in_flight += 1
            prompt = [token for block in path for token in _block(block, salt, tokens)] + [3]
            body = {"model": replica.model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
            url = f"{replica.url}/v1/completions"
            waiting.append((replica, pool.submit(client.post, url, json=body)))
        for replica, answer in waiting:
            answer.result().raise_for_status()
            replica.in_flight -= 1


def _block(number: int, salt: int, tokens: int) -> list[int]:
    rng = random.Random(number * 1009 + salt)
    return [rng.randrange(4, 250) for _ in range(tokens)]


def counted(replica: Replica) -> tuple[float, float]:
    """Tokens hit and queried, by the server's own count."""
    page = httpx.get(f"{replica.url}/metrics", timeout=30).text
    if replica.model == "tiny":
        names = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
        return total(page, names[0]), total(page, names[1])
    hits = sample(page, "kvscope_prefix_cache_hit_tokens_total", phase="first") or 0
    return hits, sample(page, "kvscope_prefix_cache_query_tokens_total", phase="first") or 0


def steps(fleet: str) -> dict[str, int]:
    """Sums of the only name space, in blocks."""
    spaces = httpx.get(f"{fleet}/api/fleet", timeout=30).json()["spaces"]
    if not spaces:
        return dict.fromkeys(STEPS, 0)
    (space,) = spaces
    return {step: space[f"{step}_blocks"] for step in STEPS}


def predicted(paths: Paths, replicas: int, blocks: int) -> dict[str, float]:
    """Share found by policy, by `kvscope whatif --replicas` on the same requests."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        for number, path in enumerate(paths):
            request = {
                "timestamp": number * 100,
                "input_length": len(path) * TRACE_BLOCK_TOKENS,
                "output_length": 1,
                "hash_ids": list(path),
            }
            trace.write(json.dumps(request) + "\n")
        trace.flush()
        command = [sys.executable, "-m", "kvscope", "whatif", trace.name, "--json"]
        command += ["--replicas", str(replicas), "--capacity", str(blocks)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    policies = json.loads(answer.stdout)["policies"]
    return {one["policy"]: one["own_blocks"] / one["asked_blocks"] for one in policies}


def compare(given: argparse.Namespace) -> bool:
    """Whether all predictions come true."""
    tokens = BLOCK_TOKENS[given.server]
    paths = paths_of(given.trace, given.requests, given.most_blocks)
    asked = sum(map(len, paths))
    print(f"{len(paths)} requests of {asked:,} blocks, {given.replicas} x {given.blocks} blocks")
    replay = predicted(paths, given.replicas, given.blocks)
    is_right = True
    with serving(given.server, given.replicas, given.blocks, given.python) as replicas:
        for one in replicas:  # a vLLM knows its name space with its first request
            send([one], Router("round-robin", [one], given.blocks), [[0]], tokens, len(POLICIES))
        options = [f"--sidecar=r{number}={one.page}" for number, one in enumerate(replicas)]
        with kvscope("fleet", "--port", "0", *options) as follower:
            fleet = follower.find(r"the fleet: (\S+)")
            try:
                wait_for(lambda: _all_counted(fleet, given.replicas), "all are counted", 60)
            except AssertionError:
                print(httpx.get(f"{fleet}/api/fleet", timeout=30).json()["replicas"])
                raise
            print(f"{'policy':12} {'replay':>7} {'served':>7} {'best':>7} {'seen':>7}")
            for salt, policy in enumerate(POLICIES):
                for replica in replicas:
                    replica.likely.clear()
                    _reset(replica)
                before, fleet_before = [counted(one) for one in replicas], steps(fleet)
                router = Router(policy, replicas, given.blocks)
                send(replicas, router, paths, tokens, salt)
                wait_for(_seen(fleet, fleet_before, asked), "the fleet has counted them", 60)
                found = {s: n - fleet_before[s] for s, n in steps(fleet).items()}
                hits = sum(counted(one)[0] for one in replicas) - sum(h for h, _ in before)
                served = hits / tokens / asked
                print(
                    f"{policy:12} {replay[policy]:7.2%} {served:7.2%} {found['best'] / asked:7.2%} "
                    f"{found['seen'] / asked:7.2%}",
                    flush=True,
                )
                is_right = is_right and abs(served - replay[policy]) <= LIMIT
                if found["own"] * tokens != hits:
                    print(f"  the fleet counts {found['own'] * tokens:,} tokens, they {hits:,.0f}")
                    is_right = False
    return is_right


def _reset(replica: Replica) -> None:
    httpx.post(f"{replica.url}/reset_prefix_cache", json={}, timeout=60).raise_for_status()


def _all_counted(fleet: str, number: int) -> bool:
    page = httpx.get(f"{fleet}/metrics", timeout=30).text
    return sample(page, "kvscope_fleet_replicas", state="counted") == number


def _seen(fleet: str, before: dict[str, int], asked: int) -> Callable[[], bool]:
    return lambda: steps(fleet)["asked"] - before["asked"] == asked


def main() -> int:
    """Compare as the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--server", choices=BLOCK_TOKENS, default="kvscope")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--most-blocks", type=int, default=100)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    return int(not compare(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
