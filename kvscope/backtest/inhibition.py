"""Alertmanager's inhibition over firings: which of them another alert held back all the time."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import kvscope_alerts
from kvscope.backtest import BacktestError
from kvscope.backtest.evaluation import EVERY_SECONDS, Firing

_CONFIGURATION = Path(kvscope_alerts.__file__).parent / "alertmanager.yml"
SHIPPED = (
    _CONFIGURATION
    if _CONFIGURATION.exists()
    else _CONFIGURATION.parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
)
"""The wheel has it beside the rules' package, a checkout where it is deployed from."""
_MATCHER = re.compile(
    r'\s*"?([^\s"=~!{}]+)"?\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|([^"{},]*?))\s*(?:,|$)'
)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}


class Matcher(NamedTuple):
    label: str
    pattern: re.Pattern[str]
    is_negative: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """A missing label is an empty one."""
        found = self.pattern.fullmatch(labels.get(self.label, ""))
        return (found is None) == self.is_negative


class Rule(NamedTuple):
    """While an alert of `source` fires, those of `target` with `equal` labels are held back."""

    source: Sequence[Matcher]
    target: Sequence[Matcher]
    equal: Sequence[str]

    def holds_back(self, target: Mapping[str, str], source: Mapping[str, str]) -> bool:
        if not (_all(self.target, target) and _all(self.source, source)):
            return False
        if any(target.get(label, "") != source.get(label, "") for label in self.equal):
            return False
        # An alert of both sides is held back by one of the source alone.
        return not (_all(self.source, target) and _all(self.target, source))


def inhibition_rules(path: Path) -> list[Rule]:
    """The rules of an Alertmanager's configuration. Raises BacktestError."""
    try:
        config: Any = yaml.safe_load(path.read_text())
        rules = config.get("inhibit_rules") or []
        return [
            Rule(_side(each, "source"), _side(each, "target"), tuple(each.get("equal") or ()))
            for each in rules
        ]
    except OSError as error:
        raise BacktestError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, AttributeError, TypeError, yaml.YAMLError, re.error) as error:
        said = " ".join(str(error).split())
        raise BacktestError(f"{path}: not an Alertmanager's configuration: {said}"[:300]) from None


def held_back(firings: Sequence[Firing], rules: Sequence[Rule]) -> set[Firing]:
    """Those that were held back at every moment at which they fired."""
    return {firing for firing in firings if _is_held_back(firing, firings, rules)}


def _is_held_back(firing: Firing, among: Iterable[Firing], rules: Sequence[Rule]) -> bool:
    labels = dict(firing.labels)
    sources = [
        other
        for other in among
        if other is not firing
        and other.since < firing.until
        and firing.since < other.until
        and any(rule.holds_back(labels, dict(other.labels)) for rule in rules)
    ]
    moments = range(firing.since, max(firing.until, firing.since + 1), EVERY_SECONDS)
    return all(any(each.since <= now < each.until for each in sources) for now in moments)


def _all(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.matches(labels) for matcher in matchers)


def _side(rule: Mapping[str, Any], side: str) -> list[Matcher]:
    """In the present notation and in the one before it."""
    found = [m for text in rule.get(f"{side}_matchers") or () for m in _matchers(text)]
    for label, value in (rule.get(f"{side}_match") or {}).items():
        found.append(_matcher(label, "=", str(value)))
    for label, value in (rule.get(f"{side}_match_re") or {}).items():
        found.append(_matcher(label, "=~", str(value)))
    return found


def _matchers(text: str) -> Iterable[Matcher]:
    left = text.strip().removeprefix("{").removesuffix("}").strip()
    while left:
        found = _MATCHER.match(left)
        if found is None:
            raise ValueError(f"{text!r} is not a matcher")
        label, operator, quoted, bare = found.groups()
        value = bare if quoted is None else _ESCAPED.sub(_unescaped, quoted)
        yield _matcher(label, operator, value)
        left = left[found.end() :].strip()


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])


def _matcher(label: str, operator: str, value: str) -> Matcher:
    pattern = value if operator.endswith("~") else re.escape(value)
    return Matcher(label, re.compile(pattern), operator.startswith("!"))
