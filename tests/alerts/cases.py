"""The cases of alerts, as promtool's tests: quiet, pending, firing with its texts, resolved.

A case in `alerts/tests/` says what cannot be known from the rules: the series, the moments, labels
and descriptions. The rest of what promtool compares is the rule's.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import yaml

from tests.alerts.tools import ALERTS, groups_of, rules_of

FILES = sorted((ALERTS / "tests").glob("*.cases.yml"))
_OF_RULES = ("alertname", "severity", "topic", "sign", "what", "objective", "loading")
_VARIABLE = re.compile(r"\{\{with \$labels\.(\w+)\}\}([^{]*)\{\{\.\|urlquery\}\}\{\{end\}\}")


@dataclass(frozen=True)
class Expected:
    """One alert of a case."""

    name: str
    labels: dict[str, str]
    """Without those that its rule adds, except for those by which rules of one name differ."""
    says: str = ""
    servers: str = "-"
    only: str = ""
    """`pending` or `firing`, if it is not both when the others are."""

    @property
    def rule(self) -> Any:
        own = {k: v for k, v in self.labels.items() if k in _OF_RULES}
        (found,) = (
            rule
            for group in groups_of()
            for rule in group["rules"]
            if rule.get("alert") == self.name
            and {k: v for k, v in rule["labels"].items() if k not in ("severity", "topic")} == own
        )
        return found

    @property
    def whole(self) -> dict[str, str]:
        return {**self.labels, **self.rule["labels"]}

    @property
    def annotations(self) -> dict[str, str]:
        annotations = {k: filled(v, self.labels) for k, v in self.rule["annotations"].items()}
        servers = {"servers": self.servers} if "servers" in annotations else {}
        return {**annotations, "description": self.says, **servers}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Series over time, and the alerts of all of them."""

    name: str
    about: str
    interval: str
    evaluation: str
    series: dict[str, str]
    quiet: str
    pending: str
    firing: str
    resolved: str
    alerts: list[Expected] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {alert.name for alert in self.alerts}

    @property
    def rules(self) -> dict[str, Any]:
        """Its alerts' rules, and no others of their names."""
        own = [alert.rule for alert in self.alerts]
        return rules_of(lambda rule: rule in own)

    def document(self, rule_files: list[str]) -> dict[str, Any]:
        """The case as a file of promtool's."""
        order = [group["name"] for group in groups_of()]
        order.sort(key=lambda name: not name.endswith(".rules"))
        known = {group["name"] for group in self.rules["groups"]}
        return {
            "rule_files": rule_files,
            "evaluation_interval": self.evaluation,
            "group_eval_order": [name for name in order if name in known],
            "tests": [self.promtool()],
        }

    def promtool(self) -> dict[str, Any]:
        checks, samples = [], []
        for name in sorted(self.names):
            mine = [alert for alert in self.alerts if alert.name == name]
            fired = [
                {"exp_labels": alert.whole, "exp_annotations": alert.annotations}
                for alert in mine
                if alert.only != "pending"
            ]
            for at, expected in (
                (self.quiet, []),
                (self.pending, []),
                (self.firing, fired),
                (self.resolved, []),
            ):
                checks.append({"alertname": name, "eval_time": at, "exp_alerts": expected})
            waiting = [
                {"labels": _sample(alert), "value": 1} for alert in mine if alert.only != "firing"
            ]
            ask = f'ALERTS{{alertname="{name}"}}'
            samples.append({"expr": ask, "eval_time": self.quiet, "exp_samples": []})
            samples.append({"expr": ask, "eval_time": self.pending, "exp_samples": waiting})
        return {
            "name": self.name,
            "interval": self.interval,
            "input_series": [{"series": k, "values": v} for k, v in self.series.items()],
            "promql_expr_test": samples,
            "alert_rule_test": checks,
        }

    def write(self, folder: Path, number: int) -> Path:
        """The file, beside one with the rules that it needs."""
        rules = folder / f"{number}.rules.yml"
        rules.write_text(yaml.safe_dump(self.rules))
        path = folder / f"{number}.test.yml"
        path.write_text(yaml.safe_dump(self.document([rules.name]), sort_keys=False))
        return path


def _sample(alert: Expected) -> str:
    labels = {**alert.whole, "alertname": alert.name, "alertstate": "pending"}
    return "ALERTS{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"


def filled(text: str, labels: dict[str, str]) -> str:
    """A template of a link, with its labels."""
    return _VARIABLE.sub(
        lambda m: m[2] + quote_plus(labels[m[1]]) if labels.get(m[1]) else "", text
    )


@cache
def cases_of(path: Path) -> tuple[Case, ...]:
    content: Any = yaml.safe_load(path.read_text())
    return tuple(_case(each, content["evaluation_interval"]) for each in content["cases"])


def _case(raw: Any, evaluation: str) -> Case:
    alerts = [Expected(**{"name": raw["name"], **each}) for each in raw["alerts"]]
    return Case(
        name=raw["name"],
        about=raw["about"],
        interval=raw["interval"],
        evaluation=raw.get("evaluation_interval", evaluation),
        series=raw["series"],
        **{moment: raw[moment] for moment in ("quiet", "pending", "firing", "resolved")},
        alerts=alerts,
    )
