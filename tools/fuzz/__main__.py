"""`make fuzz`: inputs for every parser, each in a process of its own.

    python -m tools.fuzz --inputs 100000 [--target NAME]... [--seed N]

Exit status 1 if a parser raised what it does not declare, took long, hung, or kept memory.
"""

import argparse
import sys

from tools.fuzz.aside import fuzz_aside
from tools.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    parser.add_argument("--target", action="append", choices=TARGETS, help="this parser only")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    findings: list[str] = []
    for name in arguments.target or TARGETS:
        outcome = fuzz_aside(name, arguments.inputs, arguments.seed)
        print(outcome, flush=True)
        findings += outcome.findings
    for finding in findings:
        print(finding, file=sys.stderr)
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
