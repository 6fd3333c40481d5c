"""Server cost of a request: completions a second, before a change and after it.

    python -m benchmarks.request_cost --before CHECKOUT

Two servers of the demo model, the checkout's and this one's; rounds alternate between them, so that
drift of the machine cancels, and while one works the other is idle. Each client has one connection
and sends prompts of 256 token ids, one after the other. Without --before both are this one: how far
the ratio is from 1 then is the noise. The ratio of processor time is that of the two processes,
which others on the machine disturb less.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.report import environment

CALLS = {1: 12, 8: 32, 32: 64}
"""Calls of all clients together in one round, by the number of clients."""
PROMPT_TOKENS = 256
OUTPUT_TOKENS = 8
ROUNDS = 20
HERE = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0


class Server:
    """`kvscope serve` of one checkout."""

    def __init__(self, checkout: Path) -> None:
        arguments = ["serve", "--port", "0", "--no-gpu", "--num-gpu-blocks-override", "2048"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from kvscope.cli import main; main()", *arguments],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        deadline = time.monotonic() + START_SECONDS
        for line in self._process.stderr:
            found = re.search(r"serving demo at http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
            if time.monotonic() > deadline:
                break
        self.stop()
        raise SystemExit(f"the server of {checkout} did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)

    def processor_seconds(self) -> float:
        """Processor time of the server so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def seconds(self, prompts: list[list[int]], clients: int, stream: bool) -> float:
        """Time for all prompts, shared by this many clients."""
        began = time.perf_counter()
        await asyncio.gather(
            *(self._client(prompts[number::clients], stream) for number in range(clients))
        )
        return time.perf_counter() - began

    async def _client(self, prompts: list[list[int]], stream: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for prompt in prompts:
            body = json.dumps(
                {
                    "prompt": prompt,
                    "max_tokens": OUTPUT_TOKENS,
                    "temperature": 0,
                    "ignore_eos": True,
                    "stream": stream,
                }
            ).encode()
            head = (
                "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in answer.splitlines()[0], answer
            if stream:
                await reader.readuntil(b"[DONE]")
                await reader.readuntil(b"0\r\n\r\n")
            else:
                length = re.search(rb"(?i)content-length: (\d+)", answer)
                assert length is not None
                await reader.readexactly(int(length[1]))
        writer.close()
        await writer.wait_closed()


async def measure(
    before: Server, after: Server, clients: int, *, stream: bool, rounds: int
) -> dict[str, float]:
    """Medians of pairs of rounds that follow each other."""
    random = Random(clients)
    ratios, rates = [], []
    taken = {id(server): 0.0 for server in (before, after)}
    for number in range(rounds + 1):
        prompts = [
            [random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(CALLS[clients])
        ]
        order = (before, after) if number % 2 else (after, before)
        seconds = {}
        for server in order:
            began = server.processor_seconds()
            seconds[id(server)] = await server.seconds(prompts, clients, stream)
            if number:
                taken[id(server)] += server.processor_seconds() - began
        if number:  # the first round is warm-up
            ratios.append(seconds[id(before)] / seconds[id(after)])
            rates.append(CALLS[clients] / seconds[id(after)])
    return {
        "completions_per_second": median(rates),
        "ratio": median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "processor_ratio": taken[id(before)] / taken[id(after)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="completions a second, before and after")
    parser.add_argument("--before", type=Path, default=HERE, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of rounds a row")
    options = parser.parse_args()
    before = Server(options.before.resolve())
    after = Server(HERE)
    rows = {}
    try:
        for stream in (False, True):
            for clients in CALLS:
                name = f"{clients} {'streams' if stream else 'clients'}"
                row = rows[name] = asyncio.run(
                    measure(before, after, clients, stream=stream, rounds=options.rounds)
                )
                cells = "  ".join(f"{key} {value:8.3f}" for key, value in row.items())
                print(f"{name:>10}  {cells}", flush=True)
    finally:
        before.stop()
        after.stop()
    print(json.dumps({"environment": environment(), "completions": rows}))


if __name__ == "__main__":
    main()
