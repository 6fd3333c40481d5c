"""The start of a server begins with its first process, however deep the one is that reports it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.process import ROOT

SERVER = """
import multiprocessing, sys, time
from kvscope_events.observers.start import Start

def engine(depth):
    if depth:
        context = multiprocessing.get_context(sys.argv[1])
        child = context.Process(target=engine, args=(depth - 1,))
        child.start()
        child.join()
    else:
        print(Start("none").event().began_ns["import"], flush=True)

if __name__ == "__main__":
    print(time.time_ns(), flush=True)
    time.sleep(1.5)  # what the API server imports
    engine(int(sys.argv[2]))
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("depth", [0, 1, 2], ids=["alone", "engine core", "worker"])
@pytest.mark.slow
def test_the_import_of_the_first_process_is_part_of_the_start(
    method: str, depth: int, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    time.sleep(0.3)
    before_ns = time.time_ns()
    done = subprocess.run(
        # The shell that starts the server is not a part of it.
        ["sh", "-c", 'sleep 0.2; "$@"; true', "sh", sys.executable, program, method, str(depth)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    ran_ns, began_ns = map(int, done.stdout.split())
    assert before_ns + 0.1e9 < began_ns <= ran_ns + 0.02e9, "that of the server's first process"
