"""The series that a PromQL expression reads, found without a parser."""

import re

_STRINGS = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_MATCHERS = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_WORDS = re.compile(r"(?<!\$)\b[A-Za-z_:][\w:]*(?!\w)(?!\s*\()")
_LABEL_VALUES = re.compile(r"label_values\((.*),\s*\w+\)")


def names_in(expression: str) -> set[str]:
    """Names of series, recorded ones included; also from Grafana's `label_values(SERIES, LABEL)`.

    A word is a name if it has `_` or `:`, or is `up` or `ALERTS`: no keyword does or is.
    """
    if whole := _LABEL_VALUES.fullmatch(expression):
        expression = whole[1]
    bare = _LABELS.sub("", _STRINGS.sub('""', expression))
    words = _WORDS.findall(_MATCHERS.sub("", bare))
    return {word for word in words if "_" in word or ":" in word or word in ("up", "ALERTS")}
