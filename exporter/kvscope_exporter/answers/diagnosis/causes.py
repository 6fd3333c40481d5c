"""Orders findings into a chain: what began, and what followed from it."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from kvscope_exporter.answers.diagnosis.finding import LEADS_TO, SYMPTOMS, Finding
from kvscope_exporter.catalogue.incident import Kind

Confidence = Literal["high", "medium", "low"]

_SLACK_NS = 25 * 10**9
"""An effect may seem to begin so much earlier than its cause: slices are 10 s long."""
_AT_ONCE_NS = 60 * 10**9
"""An effect that comes later than this after its cause may have a further cause."""
_RANK = {kind: rank for rank, kind in enumerate(get_args(Kind))}
_VISIBLE: frozenset[Kind] = frozenset(
    (
        *("neighbour", "slowed_down", "restarted", "cache_reset", "new_content"),
        *(
            "cache_too_small",
            "longer_prompts",
            "longer_answers",
            "retries",
            "more_requests",
            "pool_full",
        ),
    )
)
"""Causes; a chain that begins with anything else begins with a symptom."""


def chain_of(findings: Sequence[Finding]) -> list[Finding]:
    """The cause first, then what followed, in the order of time; empty without any harm.

    Findings from which no harm came, and which came of none, are left out.
    """
    harm = [finding for finding in findings if finding.kind in SYMPTOMS]
    if not harm:
        return []
    reaching = [each for each in findings if any(_leads(each, to, findings) for to in harm)]
    roots = [
        each
        for each in reaching
        if not any(_follows(each, other) for other in findings if other is not each)
    ]
    cause = min(roots or reaching, key=lambda each: (_began(each), _RANK[each.kind]))
    followed = [
        each for each in findings if each is not cause and (each in harm or each in reaching)
    ]
    return [cause, *sorted(followed, key=lambda each: (each.began_ns, _RANK[each.kind]))]


def confidence_of(chain: Sequence[Finding]) -> Confidence:
    """high: a known cause, and harm that followed at once; low: the cause is not visible."""
    cause = chain[0]
    if cause.kind not in _VISIBLE:
        return "low"
    first = min((each.began_ns for each in chain if each.kind in SYMPTOMS), default=cause.began_ns)
    rivals = [each for each in chain[1:] if each.kind in _VISIBLE and not _follows(each, cause)]
    return "high" if first - cause.began_ns <= _AT_ONCE_NS and not rivals else "medium"


def _began(finding: Finding) -> int:
    """Findings that begin within the slack begin together; their rank decides."""
    return finding.began_ns // _SLACK_NS


def _follows(effect: Finding, cause: Finding) -> bool:
    return (
        effect.kind in LEADS_TO.get(cause.kind, ())
        and cause.began_ns <= effect.began_ns + _SLACK_NS
    )


def _leads(cause: Finding, effect: Finding, among: Sequence[Finding]) -> bool:
    """By any way over what was found."""
    return _reaches(cause, lambda each: each is effect, among, set())


def _reaches(
    cause: Finding, goal: Callable[[Finding], bool], among: Sequence[Finding], seen: set[int]
) -> bool:
    if goal(cause):
        return True
    seen.add(id(cause))
    return any(
        id(each) not in seen and _follows(each, cause) and _reaches(each, goal, among, seen)
        for each in among
    )
