"""Cost of one evaluation of all shipped rules for a Prometheus with the fleet's series."""

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import yaml

from tests.alerts.tools import RULE_FILE
from tools.fleet.storage import Storage

CONFIG = f"""
global: {{scrape_interval: 5s, evaluation_interval: 5s}}
rule_files: ["{RULE_FILE}"]
"""
"""As shipped."""
WATCH_SECONDS = 70
"""Groups are evaluated each minute at the latest."""
_ASK_SECONDS = 1.0


@dataclass(frozen=True)
class Rounds:
    """Medians of the evaluations that were seen, in seconds."""

    groups: dict[str, float]
    rules: dict[str, float]
    """By name; of rules that share one, together."""

    @property
    def seconds(self) -> float:
        return sum(self.groups.values())


def watch(prometheus: Storage) -> Rounds:
    """Evaluations of the next minute, by Prometheus' own clock."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    rules: dict[str, dict[str, float]] = defaultdict(dict)
    until = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < until:
        for group in prometheus.ask("rules")["groups"]:
            if group["lastEvaluation"].startswith("0001"):
                continue  # not yet
            groups[group["name"]][group["lastEvaluation"]] = group["evaluationTime"]
            for name, seconds in _by_name(group).items():
                rules[name][group["lastEvaluation"]] = seconds
        time.sleep(_ASK_SECONDS)
    names = {group["name"] for group in yaml.safe_load(RULE_FILE.read_text())["groups"]}
    assert groups.keys() == names, f"not evaluated: {sorted(names - groups.keys())}"
    return Rounds(_medians(groups), _medians(rules))


def _by_name(group: dict[str, Any]) -> dict[str, float]:
    together: dict[str, float] = defaultdict(float)
    for rule in group["rules"]:
        together[rule["name"]] += rule["evaluationTime"]
    return together


def _medians(found: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(seconds.values()) for name, seconds in found.items()}
