"""Runs what a runbook has people type, with a running server in place of its placeholders."""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.alerts.runbook_commands import PAGES, commands, spans
from tests.support.process import ROOT

RUN_HERE = {"kvscope", "python", "curl", "amtool", "ps"}
"""Other programs ask about a driver, a daemon or a cluster; signals have tests of their own."""
MENTIONED = {
    "kvscope advise",
    "kvscope fleet",
    "kvscope run",
    "kvscope observer stacks",
    "kvscope why",
}
"""In a sentence, where nothing is to be typed."""
ELSEWHERE = re.compile(r"HOST:30000|wake_up|\bkvscope (sidecar|admin forget|observer (?!stacks))\b")
"""Commands for SGLang, for a vLLM in development mode; a sidecar, which runs until it is ended;
what only a sidecar of several servers knows, and what switches an observer: these have tests of
their own."""


def typed() -> list[str]:
    """Every distinct command that can be run here, those that lose something at the end."""
    found: dict[str, bool] = {}
    for path in PAGES:
        for command in commands(path):
            found[command.text] = command.loses
        found |= {span: False for span in spans(path) if " " in span}
    runnable = [
        text
        for text in found.keys() - MENTIONED
        if text.split()[0] in RUN_HERE and not ELSEWHERE.search(text)
    ]
    return sorted(runnable, key=lambda text: (found[text], text))


@dataclass
class Placeholders:
    """Values of the placeholders."""

    server: str
    """Address of the server that answers users."""
    page: str
    """Address of kvscope's page."""
    events: str
    socket: str
    """One of the addresses that events come from."""
    pid: int
    folder: Path
    environment: Mapping[str, str]
    prometheus: str = "http://PROMETHEUS:9090"
    alertmanager: str = "http://ALERTMANAGER:9093"
    fleet: str = "http://FLEET:8011"

    def filled(self, command: str) -> str:
        if command.startswith("python -m kvscope_alerts") and "kvscope_alerts.bare" not in command:
            command += " --out FOLDER/own.rules.yml && cat FOLDER/own.rules.yml"
        for placeholder, value in {
            "http://HOST:8000": self.server,
            "http://HOST:8010": self.page,
            "http://FLEET:8011": self.fleet,
            "http://PROMETHEUS:9090": self.prometheus,
            "http://ALERTMANAGER:9093": self.alertmanager,
            "MODEL=SECONDS": "demo=1",
            "'EVENTS'": f"'{self.events}'",
            "SOCKET": self.socket,
            "FOLDER": str(self.folder),
            "--duration 1m": "--duration 1",
            "instance=INSTANCE": f"instance={self.server.removeprefix('http://')}",
            "-p PID": f"-p {self.pid}",
            "-USR1 PID": f"-USR1 {self.pid}",
        }.items():
            command = command.replace(placeholder, value)
        return command

    def run(self, command: str) -> str:
        """A command's output; fails unless it succeeds."""
        programs = (
            f'kvscope() {{ "{sys.executable}" -P -m kvscope "$@"; }}\n'
            f'python() {{ "{sys.executable}" "$@"; }}\n'
        )
        done = subprocess.run(
            ["bash", "-c", programs + self.filled(command)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr
