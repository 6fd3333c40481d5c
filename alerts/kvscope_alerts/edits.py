"""Changes of an installation to single alerts: off, a different severity, a different wait."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import get_args

from kvscope_alerts.rule import Alert, Group, Rule, Severity
from kvscope_alerts.timing import seconds_of

_NOTHING: Mapping[str, str] = MappingProxyType({})
SEVERITIES = tuple(severity for severity in get_args(Severity) if severity != "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Changes by alert name. `applied` refuses unknown names."""

    disabled: frozenset[str] = frozenset()
    severities: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    waits: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """`for` of the alerts."""

    @classmethod
    def parse(cls, disable: Iterable[str], severity: Iterable[str], wait: Iterable[str]) -> "Edits":
        """Edits from the command line: names, NAME=SEVERITY and NAME=DURATION."""
        severities = _pairs("--severity", severity, "SEVERITY", "KvscopeReplicaIdle=warning")
        for name, value in severities.items():
            if value not in SEVERITIES:
                known = ", ".join(SEVERITIES)
                raise ValueError(f"--severity {name}={value}: expected one of {known}")
        waits = _pairs("--for", wait, "DURATION", "KvscopeReplicaIdle=15m")
        for name, value in waits.items():
            try:
                seconds_of(value)
            except ValueError as error:
                raise ValueError(f"--for {name}={value}: {error}") from None
        return cls(disabled=frozenset(disable), severities=severities, waits=waits)

    def applied(self, groups: Iterable[Group]) -> list[Group]:
        """The changed groups, without those that are left without a rule.

        Raises ValueError for an unknown name.
        """
        groups = list(groups)
        known = {rule.name for group in groups for rule in group.rules if isinstance(rule, Alert)}
        for flag, names in (
            ("--disable", self.disabled),
            ("--severity", self.severities),
            ("--for", self.waits),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"{flag} {name}: there is no such alert{_meant(name, known)}")
        changed = [
            replace(group, rules=[rule for old in group.rules for rule in self._changed(old)])
            for group in groups
        ]
        return [group for group in changed if group.rules]

    def _changed(self, rule: Rule) -> list[Rule]:
        if not isinstance(rule, Alert):
            return [rule]
        if rule.name in self.disabled:
            return []
        wait = self.waits.get(rule.name, rule.wait)
        severity = self.severities.get(rule.name, rule.severity)
        return [replace(rule, wait=wait, severity=severity)]  # type: ignore[arg-type]


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "; docs/reference/alerts.md lists them"


def _pairs(flag: str, pairs: Iterable[str], unit: str, example: str) -> Mapping[str, str]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator and value):
            raise ValueError(f"{flag} {pair!r}: expected NAME={unit}, as in {example}")
        found[name] = value
    return found
