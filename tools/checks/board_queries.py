"""Asks a Prometheus on a real vLLM, observed and bare, every query of every board.

    python -m tools.checks.board_queries [--seconds 120] [--python .venv/vllm/bin/python]

vLLM runs under load, with our observer in it and a simulated card beside it; the board for a bare
vLLM reads vLLM's own page. Prints for each board how many queries return numbers, and each that
does not, with its reason. Exit code 1: nothing came back, and no reason is known.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dashboards.generate import BOARDS
from tests.dashboards.asking import problem, targets
from tests.dashboards.exceptions import (
    COMES_AND_GOES,
    NOT_ON_THIS_MACHINE,
    ONLY_AFTER_A_FAULT,
    Query,
)
from tests.dashboards.of_vllm import NOT_OF_VLLM
from tests.support.prometheus import Prometheus
from tools.pictures.observed_vllm import stage
from tools.pictures.situations import ROOT, SCRAPE_SECONDS

LOAD = (
    *("mix", "--concurrency", "24", "--sessions", "40", "--max-tokens", "192"),
    *("--model", "llama-8b"),
)
WARM_UP_SECONDS = 45
MACROS = {"__rate_interval": f"{4 * SCRAPE_SECONDS}s"}
REASONS = {**COMES_AND_GOES, **NOT_ON_THIS_MACHINE, **ONLY_AFTER_A_FAULT, **NOT_OF_VLLM}


def empty(server: Prometheus, seconds: float) -> dict[Query, str]:
    """Queries that never returned anything, with the reason."""
    left: dict[Query, dict[str, Any]] = {key: t for uid in BOARDS for key, t in targets(uid)}
    problems: dict[Query, str] = {}
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        answers = {key: problem(server, target, **MACROS) for key, target in left.items()}
        problems = {key: text for key, text in answers.items() if text is not None}
        left = {key: left[key] for key in problems}
        time.sleep(2)
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120, help="of asking, under load")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/vllm/bin/python")
    arguments = parser.parse_args()
    console = Console()
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(Path(folder), arguments.python) as on,
        on.load(*LOAD, "--period", "40"),
        console.status("vLLM under load"),
    ):
        time.sleep(WARM_UP_SECONDS)
        problems = empty(on.prometheus, arguments.seconds)
    table = Table("board", "queries", "return numbers")
    for uid in BOARDS:
        keys = [key for key, _ in targets(uid)]
        table.add_row(uid, str(len(keys)), str(sum(key not in problems for key in keys)))
    console.print(table)
    for key, text in sorted(problems.items()):
        board, panel, letter = key
        console.print(f"{board} {panel} {letter}: {REASONS.get(key) or f'{text}, and no reason'}")
    sys.exit(0 if problems.keys() <= REASONS.keys() else 1)


if __name__ == "__main__":
    main()
