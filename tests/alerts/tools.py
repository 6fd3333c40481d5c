"""The programs that check rules and configurations."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvscope_alerts import dcgm
from kvscope_alerts.objectives import PROMISED
from kvscope_exporter.catalogue import CATALOGUE
from tests.repo.checkout import ROOT

ALERTS = ROOT / "alerts"
RULE_FILE = ALERTS / "kvscope.rules.yml"
WATCHDOG = "KvscopeWatchdog"
"""It fires always: it has no other state."""
ALERTMANAGER = ROOT / "deploy" / "alertmanager"

OWN_NAMES = frozenset(
    {
        *("up", "scrape_duration_seconds", "prometheus_config_last_reload_successful"),
        *("prometheus_sd_discovered_targets", "process_cpu_seconds_total"),
        *("process_start_time_seconds", PROMISED, "kube_pod_owner", "kube_statefulset_replicas"),
        *("kube_deployment_spec_replicas", "kube_pod_container_status_ready"),
        *dcgm.FAMILIES.values(),
    }
)
"""Names that Prometheus, the client library, kube-state-metrics and DCGM's exporter bring, and what
is recorded where a model has its own objective."""


def promtools() -> list[str]:
    """promtool in every version at hand: on PATH, and those that $PROMTOOLS names (separated by
    colons)."""
    further = [path for path in os.environ.get("PROMTOOLS", "").split(":") if path]
    found = shutil.which("promtool")
    return [*([found] if found else []), *further]


def output(*command: str | Path) -> str:
    """A command's output, whether it succeeds or not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def run(*command: str) -> str:
    """Its output; fails the test unless it succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def names_in(expression: str) -> set[str]:
    """Metrics that a query asks for, recorded ones included."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    words = re.findall(r"[A-Za-z_:][\w:]*(?!\w)(?!\s*\()", bare)
    return {word for word in words if "_" in word or ":" in word or word == "up"}


def known_names() -> set[str]:
    suffixes = ("", "_bucket", "_sum", "_count")
    return {row.name + suffix for row in CATALOGUE for suffix in suffixes} | OWN_NAMES


def rules_of(chosen: Callable[[Any], bool]) -> dict[str, Any]:
    """The rule file with those alert rules alone, and what they read of what is recorded.

    promtool evaluates all rules of a file in each case, a hundred at each step.
    """
    groups = groups_of()
    rules = [rule for group in groups for rule in group["rules"]]
    wanted: set[str] = set()
    left = {name for r in rules if "alert" in r and chosen(r) for name in names_in(r["expr"])}
    while left - wanted:
        wanted |= left
        left = {n for r in rules if r.get("record") in wanted for n in names_in(r["expr"])}
    kept = [
        group
        | {
            "rules": [
                r for r in group["rules"] if (chosen(r) if "alert" in r else r["record"] in wanted)
            ]
        }
        for group in groups
    ]
    return {"groups": [group for group in kept if group["rules"]]}


@cache
def groups_of() -> list[Any]:
    """The groups of the rule file."""
    groups: list[Any] = yaml.safe_load(RULE_FILE.read_text())["groups"]
    return groups
