"""`install.py FOLDER`: the wheels of FOLDER, each in a clean environment of this Python.

Runs every command from there, without torch and from a folder whose files have the names of our
packages: a user's `engine.py` is neither imported nor in the way.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Sequence
from pathlib import Path

MINE = ("engine.py", "exporter.py", "kvscope.py", "kvscope_events.py", "dashboards.py")
TRACE = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n'
PLAN = ("--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--params", "8e9")


class Installed:
    """A clean environment with one wheel in it, used from a folder of its own."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._bin = folder / "environment" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        venv.create(folder / "environment", with_pip=True)
        self.run("python", "-m", "pip", "install", "--quiet", str(wheel))
        for name in MINE:
            (self.work / name).write_text("raise SystemExit('imported a file of the user')\n")

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[str]":
        command = (str(self._bin / program), *arguments)
        kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "HOME"))}
        return subprocess.Popen(
            command,
            cwd=self.work,
            env={**kept, "PATH": os.environ["PATH"], "KVSCOPE_RUN_DIR": str(self.work / "run")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str, *arguments: str, code: int = 0) -> str:
        child = self.start(program, *arguments)
        text, _ = child.communicate(timeout=600)
        if child.returncode != code:
            raise SystemExit(f"{program} {' '.join(arguments)}: exit {child.returncode}\n{text}")
        return text

    def lacks(self, modules: Sequence[str]) -> None:
        for module in modules:
            self.run(
                "python",
                "-P" if sys.version_info >= (3, 11) else "-I",
                "-c",
                f"import {module}",
                code=1,
            )


def try_kvscope(installed: Installed) -> None:
    installed.lacks(["torch", "transformers", "matplotlib"])
    listed = installed.run("kvscope", "--help").partition("Commands:")[2]
    commands = re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE)
    if len(commands) < 10:
        raise SystemExit(f"only these commands: {commands}")
    for command in commands:
        installed.run("kvscope", command, "--help")
    installed.run("python", "-P", "-m", "kvscope", "--version")
    installed.run("kvscope", "docs", "metrics")
    installed.run("kvscope", "doctor")
    if "GiB" not in installed.run("kvscope", "plan", *PLAN, "--gpu", "H100"):
        raise SystemExit("kvscope plan printed no sizes")
    (installed.work / "trace.jsonl").write_text(TRACE * 3)
    if "hit" not in installed.run("kvscope", "whatif", "trace.jsonl"):
        raise SystemExit("kvscope whatif printed no hits")
    tried = installed.run("kvscope", "alerts", "backtest", "x.kvsr", "--ttft", "demo=0.3", code=2)
    if "not a bound" not in tried:
        raise SystemExit(f"kvscope alerts backtest has not read its rules: {tried}")
    installed.run("kvscope", "observer", "install", "./observer")
    refused = installed.run("kvscope", "engine", "serve", "demo", code=2)
    if "torch" not in refused:
        raise SystemExit(f"kvscope engine serve does not say that it needs torch: {refused}")
    _try_sidecar(installed)


def _try_sidecar(installed: Installed) -> None:
    events = f"a=ipc://{installed.work}/run/a.sock"
    sidecar = installed.start("kvscope", "sidecar", "--port", "0", "--events", events)
    try:
        assert sidecar.stdout is not None
        for line in sidecar.stdout:
            if found := re.search(r"http://\S+/targets", line):
                break
        else:
            raise SystemExit("kvscope sidecar ended at once")
        address = found[0].replace("/targets", "/metrics")
        with urllib.request.urlopen(address, timeout=60) as answer:
            if b"kvscope_source_up" not in answer.read():
                raise SystemExit("the sidecar's page has no kvscope_source_up")
    finally:
        sidecar.send_signal(signal.SIGTERM)
        sidecar.communicate(timeout=60)


def try_events(installed: Installed) -> None:
    installed.lacks(["kvscope", "kvscope_exporter", "prometheus_client"])
    program = (
        "import importlib.metadata as m, kvscope_events.observers.vllm as o;"
        "(p,) = [e for e in m.entry_points(group='vllm.general_plugins') if e.name == 'kvscope'];"
        "assert p.load() is o.register"
    )
    installed.run("python", "-I", "-c", program)


def main() -> None:
    built = Path(sys.argv[1]).resolve()
    tries = {"kvscope_events": try_events, "kvscope": try_kvscope}
    if sys.version_info[:2] == (3, 10):  # the observer's package alone runs there
        del tries["kvscope"]
    for distribution, attempt in tries.items():
        (wheel,) = built.glob(f"{distribution}-*.whl")
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            attempt(Installed(Path(folder), wheel))
            seconds = time.monotonic() - began
            print(
                f"  {wheel.name} on {sys.version.split()[0]}: every command works, {seconds:.0f} s"
            )


if __name__ == "__main__":
    main()
