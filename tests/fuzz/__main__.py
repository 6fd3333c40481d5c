"""`make fuzz`: inputs for every parser, each in a process of its own.

    python -m tests.fuzz --inputs 100000 [--target NAME]... [--seed N]

Exit status 1 if a parser raised what it does not declare, took long, hung, or kept memory.
"""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tests.fuzz.run import Outcome, fuzz
from tests.fuzz.targets import TARGETS


def _fuzz(name: str, count: int, seed: int) -> Outcome:
    return fuzz(TARGETS[name], count, seed)


def _aside(name: str, count: int, seed: int) -> Outcome:
    """In a process of its own, whose end by a hang or by memory is a finding."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as process:
        try:
            return process.submit(_fuzz, name, count, seed).result()
        except BrokenProcessPool:
            return Outcome(target=name, findings=["the process ended: a hang, or out of memory"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    parser.add_argument("--target", action="append", choices=TARGETS, help="this parser only")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    findings: list[str] = []
    for name in arguments.target or TARGETS:
        outcome = _aside(name, arguments.inputs, arguments.seed)
        print(outcome, flush=True)
        findings += outcome.findings
    for finding in findings:
        print(finding, file=sys.stderr)
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
