"""The series that a PromQL expression reads, found without a parser."""

import re

from kvscope_exporter.catalogue import CATALOGUE

_STRINGS = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_MATCHERS = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_WORDS = re.compile(r"(?<!\$)\b[A-Za-z_:][\w:]*(?!\w)(?!\s*\()")
_SELECTORS = re.compile(r'\b(kvscope_\w+)(\{(?:[^}"]|"[^"]*")*\})?')
_ROWS = {
    f"{row.name}{suffix}": row for row in CATALOGUE for suffix in ("", "_bucket", "_sum", "_count")
}
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


def not_on_a_lean_page(expression: str) -> set[str]:
    """Families of which the expression reads more than a lean page has."""
    found = set()
    labelled = re.sub(r"\bwithout\s*\([^)]*\)", "", expression)
    for name, matchers in _SELECTORS.findall(expression):
        row = _ROWS.get(name)
        if row is not None and (
            row.detail == "full"
            or (name.endswith("_bucket") and row.lean_buckets == ())
            or any(re.search(rf"\b{label}\b", labelled) for label in row.lean_without)
            or not all(
                any(f'{label}="{value}"' in matchers for value in values or ())
                for label, values in row.lean_values.items()
            )
        ):
            found.add(row.name)
    return found
