"""Modules loaded by each command: plan, help and the sidecar start without what they do not
need."""

import subprocess
import sys

from tests.support.process import ROOT

SERVER_AND_GPUS = ("uvicorn", "fastapi", "pynvml", "torch", "zmq")


def loaded(code: str, *modules: str) -> str:
    """Those of the modules that are loaded after the code, by line."""
    report = f"import sys\n{code}\nprint([m for m in {modules} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_tree_of_commands_loads_no_web_server_and_no_nvml() -> None:
    assert loaded("import kvscope.cli.app", *SERVER_AND_GPUS) == "[]"


def test_plan_loads_no_web_server_and_no_nvml() -> None:
    code = """
from kvscope.cli.app import app
sys.argv = ["kvscope", "plan", "--layers", "2", "--kv-heads", "2", "--head-dim", "64"]
app(standalone_mode=False)
"""
    assert loaded(code, *SERVER_AND_GPUS) == "[]"


def test_the_sidecar_runs_without_torch() -> None:
    code = """
import os, signal, threading, time
sys.modules["torch"] = sys.modules["transformers"] = None
from kvscope.cli.app import app
def end_once_it_listens_to_signals():
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_once_it_listens_to_signals).start()
sys.argv = ["kvscope", "sidecar", "--port", "0", "--no-gpu", "--events", "tcp://127.0.0.1:9"]
app(standalone_mode=False)
"""
    unused = "opentelemetry.sdk", "requests"  # without an OTLP endpoint
    assert loaded(code, "kvscope_engine.build", "kvscope_engine.model", *unused) == "[]"
