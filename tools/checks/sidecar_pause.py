"""Two engines under load and a sidecar that is stopped for a while.

    python -m tools.checks.sidecar_pause --minutes 5 --pause 30

Bursts of requests go to two `kvscope serve` of different names. Between bursts each engine's own
page is compared with the sidecar's, line by line, for the same step. After a while the sidecar is
stopped (SIGSTOP) and let go again; the engines' output rate before, meanwhile and after is printed.
Exit code 1: some line differed.
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx

from tests.support.pages import folded, sample
from tests.support.watched import SidecarProcess, Watched, same_step, sidecar, watched

BURST_SECONDS = 6.0
REST_SECONDS = 1.5
CLIENTS = 4


class Load:
    """Clients that send completions while `on`, and count the tokens that come back."""

    def __init__(self, servers: list[Watched]) -> None:
        self.on = threading.Event()
        self.tokens: Counter[str] = Counter()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(len(servers) * CLIENTS)
        for server in servers:
            for number in range(CLIENTS):
                self._pool.submit(self._work, server, number)

    def close(self) -> None:
        self._stop.set()
        self.on.set()
        self._pool.shutdown()

    def _work(self, server: Watched, number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            turn = 0
            while not self._stop.is_set():
                self.on.wait()
                turn += 1
                prompt = f"{'shared ' * 10}{(number + turn) % 9} {'own ' * (turn % 11)}"
                body = {"prompt": prompt, "max_tokens": 32, "ignore_eos": True, "n": 1 + turn % 2}
                answer = client.post("/v1/completions", json=body)
                if answer.status_code == 200:
                    self.tokens[server.name] += answer.json()["usage"]["completion_tokens"]


def burst(load: Load) -> float:
    """Output tokens a second of both engines together, over one burst."""
    before, began = sum(load.tokens.values()), time.monotonic()
    load.on.set()
    time.sleep(BURST_SECONDS)
    load.on.clear()
    seconds = time.monotonic() - began
    time.sleep(REST_SECONDS)
    return (sum(load.tokens.values()) - before) / seconds


def compare(server: Watched, beside: SidecarProcess) -> tuple[bool, int]:
    """Whether the folded lines are the same bytes, and how many there are."""
    deadline = time.monotonic() + 20
    while (pages := same_step(server, beside)) is None:
        if time.monotonic() > deadline:
            print(f"{server.name}: the sidecar has not caught up in 20 s", file=sys.stderr)
            return False, 0
        time.sleep(0.05)
    ours, theirs = map(folded, pages)
    for line in sorted(set(ours) ^ set(theirs)):
        print(f"{server.name}: differs: {line}", file=sys.stderr)
    return ours == theirs, len(ours)


def run(minutes: float, pause: float, say: Callable[[str], None]) -> dict[str, object]:
    """The whole story; figures for the JSON line."""
    rates: dict[str, list[float]] = {"before": [], "stopped": [], "after": []}
    compared = equal = lines = 0
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder), "red", "blue") as servers:
        load = Load(servers)
        with sidecar(*servers) as beside:
            end = time.monotonic() + minutes * 60
            stop_at = time.monotonic() + minutes * 20
            phase = "before"
            while time.monotonic() < end:
                if phase == "before" and time.monotonic() >= stop_at:
                    phase, resume_at = "stopped", time.monotonic() + pause
                    beside.process.send(signal.SIGSTOP)
                    say(f"sidecar stopped for {pause:g} s")
                rates[phase].append(burst(load))
                if phase == "stopped":
                    if time.monotonic() >= resume_at:
                        beside.process.send(signal.SIGCONT)
                        phase = "after"
                        say("sidecar goes on")
                    else:
                        continue
                for server in servers:
                    same, count = compare(server, beside)
                    compared, equal, lines = compared + 1, equal + same, lines + count
                say(
                    f"{phase}: {rates[phase][-1] if rates[phase] else 0:.0f} tokens/s, "
                    f"{equal} of {compared} comparisons equal"
                )
            healed = {
                server.name: {
                    name: sample(beside.page(server.name), f"kvscope_{name}")
                    for name in ("event_gaps_total", "event_batches_dropped_total")
                }
                for server in servers
            }
        load.close()
    return {
        "comparisons": compared,
        "equal": equal,
        "lines_compared": lines,
        "healed": healed,
        "tokens_per_second": {phase: median(r) for phase, r in rates.items() if r},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=30.0)
    arguments = parser.parse_args()
    result = run(arguments.minutes, arguments.pause, lambda text: print(text, flush=True))
    print(json.dumps(result))
    if result["equal"] != result["comparisons"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
