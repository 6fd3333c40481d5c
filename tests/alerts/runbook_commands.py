"""The commands of the runbooks: what each is, where it can be run, and what it does to a server.

The convention that readers rely on: behind a command that changes something stands what it loses.
"""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.alerts.tools import ALERTS

PAGES = sorted((ALERTS / "runbooks").rglob("*.md"))
"""All of them: an alert's, the packs', and the one that explains the others."""
OF_ALERTS = sorted(set((ALERTS / "runbooks").glob("*.md")) - {ALERTS / "runbooks" / "README.md"})


class Effect(Enum):
    """Upon the server that an alert is about."""

    READS = "none"
    CHANGES = "something of it, or of where it runs"
    ENDS = "it, at once or in an orderly way"


@dataclass(frozen=True)
class Command:
    """One of a block, or between two backticks."""

    text: str
    comment: str = ""

    @property
    def program(self) -> str:
        return self.text.split()[0]

    @property
    def loses(self) -> bool:
        return re.search(r"\bloses\b", self.comment) is not None

    @property
    def own_engine_only(self) -> bool:
        return self.comment.startswith("own engine only")

    @property
    def effect(self) -> Effect | None:
        """None: of no form that is known."""
        for effect, forms in FORMS.items():
            if any(re.fullmatch(form, self.text) for form in forms):
                return effect
        return None


POD = r"kubectl -n NAMESPACE"
DEPLOYMENT = r"deployment/NAME"
FORMS: dict[Effect, tuple[str, ...]] = {
    Effect.READS: (
        rf"{POD} (get|describe|top|logs) \S.*",
        rf"{POD} rollout (status|history) {DEPLOYMENT}( --timeout=5s)?",
        rf"{POD} exec POD -c kvscope -- kvscope (observer stacks 'EVENTS'|doctor)",
        r"kubectl get nodes?( NODE)?",
        r"systemctl status UNIT",
        r"journalctl -u (UNIT|kvscope-sidecar)( -n \d+)? --no-pager",
        r"docker (ps( -a)?|logs --tail \d+ CONTAINER|inspect --format '[^']+' CONTAINER)",
        r"nvidia-smi( -L| nvlink -e)?",
        r"nvidia-smi (-q -d [A-Z_,]+|--query-(compute-apps|gpu)=[a-z_.,]+ --format=csv) -i UUID",
        r"dmesg -T( \| grep -i( -e)? \w+( -e \w+)*)?",
        r"lspci -d 10de:",
        r"ps -ww -o [a-z,]+ -p PID",
        r"ss -Htn .*",
        r"curl -s( -o /dev/null -w '[^']*')? http://[A-Z]+:\d+/[a-z0-9/]+",
        r"kvscope (doctor|advise|rec save|whatif|observer stacks|sidecar)( (?!--held)\S+)*",
        r"amtool --alertmanager.url=http://ALERTMANAGER:9093 (alert|silence) query",
        r"amtool --alertmanager.url=http://ALERTMANAGER:9093 silence add .*",
        r"python -m kvscope_alerts(\.bare)? .*",
    ),
    Effect.CHANGES: (
        rf"{POD} label pod POD LABEL-",
        rf"{POD} scale {DEPLOYMENT} --replicas=N",
        rf"{POD} debug POD -it .* -- py-spy dump --nonblocking --pid PID",
        r"kubectl cordon NODE",
        r"py-spy dump --nonblocking --pid PID",
        r"(systemctl start UNIT|docker start CONTAINER)",
        r"kvscope admin forget http://HOST:8010 --target TARGET",
        r"kvscope observer on SOCKET",
        r"systemctl set-property --runtime UNIT MemoryMax=\d+G",
        r"systemctl restart kvscope-sidecar",
        r"docker restart SIDECAR",
        r"docker update --memory \d+g --memory-swap \d+g CONTAINER",
        r"curl -sf -X POST .*/(api/gpu/(release|resume)|wake_up)",
        r"kill -USR1 PID",
    ),
    Effect.ENDS: (
        rf"{POD} delete pod POD( --grace-period=1)?",
        rf"{POD} rollout undo {DEPLOYMENT}",
        r"systemctl (stop|restart) UNIT",
        r"systemctl kill -s KILL UNIT",
        r"docker (restart( -t 1)?|kill) CONTAINER",
        r"nvidia-smi --gpu-reset -i UUID",
        r"kvscope observer stacks --held 'EVENTS'",
        r"ss -K dst CLIENT sport = :8000",
        r"curl -sf -X POST .*/abort_request",
    ),
}
"""Every form of a command that a runbook may have; the first that fits is it."""

ANYWHERE = {"kubectl", "curl", "amtool", "python"}
ON_THE_HOST = {
    *("systemctl", "journalctl", "docker", "nvidia-smi", "dmesg", "lspci", "ps", "ss", "kill"),
    "py-spy",
}
WITH_KVSCOPE = {"kvscope"}
"""Needs such a program; the page that explains the others says so."""


def blocks(path: Path) -> list[tuple[str, str]]:
    """Language and content of each."""
    found: list[tuple[str, str]] = re.findall(
        r"^ *```(\w*)\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL
    )
    return found


def commands(path: Path) -> list[Command]:
    """Commands in its shell blocks."""
    found = []
    for language, content in blocks(path):
        if language == "sh":
            for line in re.sub(r"\\\n *", "", content).splitlines():
                text, _, comment = line.partition("  # ")
                found += [Command(each.strip(), comment.strip()) for each in text.split("; ")]
    return found


def spans(path: Path) -> list[str]:
    """Text between two backticks, outside of blocks."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", text)]


def queries(path: Path) -> list[str]:
    return [
        line.strip()
        for language, content in blocks(path)
        if language == "promql"
        for line in content.splitlines()
        if line.strip()
    ]
