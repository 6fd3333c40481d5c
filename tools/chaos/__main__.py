"""`make chaos`: attacks on a real server, and what they did to its other clients.

    python -m tools.chaos --seconds 600 [--attack NAME]... [--seed N]

Exit status 1 if any limit was missed.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tools.chaos.attacks import ATTACKS
from tools.chaos.run import run


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for all attacks together")
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="this one only")
    parser.add_argument("--seed", type=int, default=0, help="of the order; 0: as they are listed")
    parser.add_argument("--log", type=Path, help="where the server's log is kept")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends the server as well
    with tempfile.TemporaryDirectory(prefix="kvscope-chaos-") as folder:
        missed = run(
            arguments.attack or list(ATTACKS),
            arguments.seconds,
            Path(folder),
            _say,
            seed=arguments.seed,
        )
        if arguments.log is not None:
            arguments.log.write_bytes((Path(folder) / "server.log").read_bytes())
    for text in missed:
        _say(f"missed: {text}")
    _say(f"{len(missed)} limits missed" if missed else "all limits held")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
