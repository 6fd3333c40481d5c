"""The engine under chaos: preemptions, raising requests, clients that leave, lost memory.

    python -m tools.engine_chaos [--seconds N] [--mode recompute|swap|auto] [--seed N]

The whole engine in this process, with a quarter of the blocks that its calls want. Every call that
is left alone must get the tokens of an undisturbed engine; afterwards no block, thread, file or
memory may be left behind. Exit code 0 if all is well, 1 if not.
"""

import argparse
import logging
import sys
from typing import get_args

from engine.config import PreemptionPolicy
from tools.engine_chaos.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description="The engine under chaos.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mode", choices=get_args(PreemptionPolicy), default="recompute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=300, help="of a round")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    problems = run(
        options.seconds,
        options.mode,
        lambda line: print(line, flush=True),
        calls=options.calls,
        seed=options.seed,
    )
    for problem in problems:
        print(problem)
    print("all is well" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
