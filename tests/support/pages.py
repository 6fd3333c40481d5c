"""Two pages of one engine, compared: what was folded from its events must be the same bytes."""

import re

from kvscope_exporter.catalogue import CATALOGUE

_OF_THE_MOMENT = frozenset(
    {
        "kvscope_kv_retention_seconds",
        "kvscope_kv_pool_shortfall_blocks",
        "kvscope_kv_exhaustion_probability",
        "kvscope_advice_value",
        "kvscope_advice_saved_tokens_per_second",
        "kvscope_incident_age_seconds",
        "kvscope_last_step_age_seconds",
    }
)
"""Ages, windows, forecasts and judgements of them: they move between two pages of one step."""
_FOLDED = (
    frozenset(
        row.name
        for row in CATALOGUE
        if row.name.startswith("kvscope_") and row.events and row.group != "self"
    )
    - _OF_THE_MOMENT
)
_NAME = re.compile(r"[a-z_:0-9]+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_STEPS = re.compile(r'^kvscope_events_total\{.*type="(\w+)"\} (\S+)$', re.MULTILINE)


def folded(page: str) -> list[str]:
    """The lines of kvscope's families that come from events: all but the exporter's own state and
    what depends on the machine or the moment when the page is made."""
    lines = []
    for line in page.splitlines():
        match = _NAME.match(line)
        if match and (match[0] in _FOLDED or _SUFFIX.sub("", match[0]) in _FOLDED):
            lines.append(line)
    return lines


def events_seen(page: str) -> dict[str, float]:
    """Events received, by type: two pages with the same counts speak of the same step."""
    return {kind: float(count) for kind, count in _STEPS.findall(page)}


def sample(page: str, name: str, **labels: str) -> float | None:
    """The one sample of that name with those labels; None where it is absent."""
    found = []
    for line in page.splitlines():
        head, _, number = line.rpartition(" ")
        has = all(f'{label}="{text}"' in head for label, text in labels.items())
        if head.partition("{")[0] == name and has:
            found.append(float(number))
    assert len(found) <= 1, (name, labels, found)
    return found[0] if found else None
