"""`make chaos`, `make engine-chaos` and `make fleet`: what must not happen, looked for at length.

    python -m tools.chaos server [--seconds 600] [--attack NAME]... [--seed N] [--log FILE]
    python -m tools.chaos engine [--seconds 60] [--mode recompute|swap|auto] [--calls N] [--seed N]
    python -m tools.chaos fleet [--servers 50] [--hours 24] [--step 60] [--minutes 5]

server: attacks on a real server, and what they did to its other clients. engine: preemptions,
raising requests, clients that leave and lost memory. fleet: the shipped rules over a day of servers
with eight GPUs each, which needs prometheus, promtool and prometheus-alertmanager on PATH, a C
compiler, ten minutes and three GiB of disk. Every finding is a line at the end; exit status 1 if
there is one.
"""

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from kvscope_engine.config import PreemptionPolicy
from tools.chaos.frame import Say


def _server(given: argparse.Namespace, folder: Path, say: Say) -> list[str]:
    from tools.chaos.attacks import ATTACKS
    from tools.chaos.run import run

    missed = run(given.attack or list(ATTACKS), given.seconds, folder, say, seed=given.seed)
    if given.log is not None:
        shutil.copyfile(folder / "server.log", given.log)
    return missed


def _engine(given: argparse.Namespace, _: Path, say: Say) -> list[str]:
    from tools.chaos.engine.run import run

    logging.disable(logging.ERROR)
    return run(given.seconds, given.mode, say, calls=given.calls, seed=given.seed)


def _fleet(given: argparse.Namespace, folder: Path, say: Say) -> list[str]:
    from tools.chaos.fleet.run import run

    return run(given.servers, given.hours, given.step, given.minutes, folder, say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds = parser.add_subparsers(required=True)
    server, engine, fleet = (kinds.add_parser(name) for name in ("server", "engine", "fleet"))
    for kind, run in ((server, _server), (engine, _engine), (fleet, _fleet)):
        kind.set_defaults(run=run)
    server.add_argument("--seconds", type=float, default=600.0, help="for all attacks together")
    server.add_argument("--attack", action="append", help="this one only")
    server.add_argument("--seed", type=int, default=0, help="of the order; 0: as they are listed")
    server.add_argument("--log", type=Path, help="where the server's log is kept")
    engine.add_argument("--seconds", type=float, default=60.0)
    engine.add_argument("--mode", choices=get_args(PreemptionPolicy), default="recompute")
    engine.add_argument("--seed", type=int, default=0)
    engine.add_argument("--calls", type=int, default=300, help="of a round")
    fleet.add_argument("--servers", type=int, default=50)
    fleet.add_argument("--hours", type=float, default=24)
    fleet.add_argument("--step", type=int, default=60, help="seconds from scrape to scrape")
    fleet.add_argument("--minutes", type=float, default=5, help="of each recorded run")
    return parser


def main() -> None:
    given = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends what was started as well
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="kvscope-chaos-") as folder:
        found = given.run(given, Path(folder), say)
    for line in found:
        print(f"missed: {line}")
    print(f"{len(found)} findings" if found else "all is well")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
