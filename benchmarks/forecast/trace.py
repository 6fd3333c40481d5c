"""A public trace as a load: Mooncake's JSON lines, or Azure's CSV, at a quarter of its rate.

Four laps, each with another quarter of the requests: an hour of trace is four hours of load, and no
request comes twice.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from random import Random

from benchmarks.forecast.clients import Call
from benchmarks.forecast.loads import Load
from benchmarks.forecast.simulator import Machine
from kvscope.mooncake import TRACE_BLOCK_TOKENS, read_trace

VARIABLE = "KVSCOPE_TRACE"
LAPS = 4


def trace_load() -> Load | None:
    """The load of the trace that the environment names; None: it names none."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    path = Path(name)
    if path.suffix == ".csv":
        read, machine = _azure, Machine(num_blocks=2_900)
    else:
        read = _mooncake
        machine = Machine(
            num_blocks=7_500,
            block_size=64,
            max_num_batched_tokens=8_192,
            enable_prefix_caching=True,
            token_seconds=0.00001,
        )

    def calls(_: Random, seconds: float) -> Iterator[Call]:
        start = at = 0.0
        for lap in range(LAPS):
            for call in islice(read(path), lap, None, LAPS):
                at = start + call.at
                if at >= seconds:
                    return
                yield replace(call, at=at)
            start = at + 1.0

    what = f"{path.name}, one request in {LAPS}, {LAPS} laps"
    return Load(name="trace", what=what, machine=machine, calls=calls)


def _mooncake(path: Path) -> Iterator[Call]:
    for request in read_trace(path):
        tokens = [token for token in request.hash_ids for _ in range(TRACE_BLOCK_TOKENS)]
        yield Call(
            at=request.timestamp_ms / 1e3,
            prompt=tokens[: request.input_length],
            output=max(1, request.output_length),
            max_tokens=2_000,
        )


def _azure(path: Path) -> Iterator[Call]:
    began: datetime | None = None
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            began = began or at
            yield Call(
                at=(at - began).total_seconds(),
                prompt=int(row["ContextTokens"]),
                output=max(1, int(row["GeneratedTokens"])),
                max_tokens=1_000,
            )
