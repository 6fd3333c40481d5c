"""`/api/why`: the cause of what is wrong, the harm that it does, and what to do."""

import msgspec

from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.clauses import clause_of
from kvscope_exporter.answers.diagnosis.course import SLICE_NS
from kvscope_exporter.answers.diagnosis.engine import Confidence, engine
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.harm import harm_at
from kvscope_exporter.answers.diagnosis.roots import restarted, roots_of
from kvscope_exporter.answers.diagnosis.scene import FOLDS, Scene, scene_of
from kvscope_exporter.answers.diagnosis.verdict import OVER, Verdict, verdict_of
from kvscope_exporter.answers.question import Question
from kvscope_exporter.catalogue.incident import PHRASES, Kind

_EXCLUDED: tuple[Kind, ...] = (
    *("neighbour", "slowed_down", "restarted", "cache_reset", "new_content"),
    *("more_requests", "longer_prompts", "longer_answers", "slow_steps"),
)
_UNEXPLAINED: tuple[Kind, ...] = ("slow_steps", "latency", "failures", "host")
"""Without a cause behind them, these are symptoms."""
_MOST = 0.6
"""Share of its time with which a cause stands alone."""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    kind: str
    at_seconds: float
    """Unix time at which it began."""
    until_seconds: float | None
    """None: it goes on."""
    text: str
    evidence: dict[str, float]


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    """All of it for people: times in UTC."""
    chain: list[Clause]
    """The cause, then what followed; empty: nothing is wrong."""
    confidence: Confidence | None
    """That the first clause is the cause; None: nothing is wrong."""
    remedy: str
    excluded: list[str]
    """Causes that were looked for and ruled out."""
    seconds: float
    """Length of the past that it looked at."""
    unseen: list[str] = []
    """Sentences about what this server does not report."""


def _answer(scene: Scene) -> WhyAnswer:
    course = scene.aligned
    bounds = scene.first_token_bounds, scene.inter_token_bounds
    verdict = verdict_of(course, lambda index: harm_at(course, index, *bounds))
    chain = list(engine(scene))
    confidence: Confidence = "high"
    if verdict is not None:
        roots = roots_of(scene, course, verdict)
        clause = clause_of(scene, course, verdict)
        chain += [*roots, clause]
        if chain[0] is clause or len(roots) > 1:
            confidence = _confidence(verdict, clause, len(roots))
    since_ns = scene.now_ns - OVER * SLICE_NS
    if not any(finding.kind == "restarted" for finding in chain):
        chain += [restarted(at_ns) for at_ns in course.restarts_ns[-1:] if at_ns > since_ns]
    kinds = {finding.kind for finding in chain}
    blind = [] if scene.gpus else ["neighbour", "slowed_down"]
    excluded = [PHRASES[kind] for kind in _EXCLUDED if kind not in kinds and kind not in blind]
    remedy = next((finding.remedy for finding in chain if finding.remedy), "")
    return WhyAnswer(
        sentence=_sentence(scene, chain, remedy),
        chain=[_clause(scene, finding) for finding in chain],
        confidence=confidence if chain else None,
        remedy=remedy,
        excluded=excluded,
        seconds=len(course.slices) * SLICE_NS / 1e9,
        unseen=scene.unseen,
    )


def _confidence(verdict: Verdict, clause: Finding, roots: int) -> Confidence:
    if not roots and verdict.kind in _UNEXPLAINED:
        return "low"
    whole = clause.evidence.get("of_seconds", 0.0)
    is_alone = not whole or clause.evidence["seconds"] >= _MOST * whole
    return "high" if is_alone and roots < 2 else "medium"


def _sentence(scene: Scene, chain: list[Finding], remedy: str) -> str:
    if not chain:
        seconds = len(scene.aligned.slices) * SLICE_NS / 1e9
        past = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        return " ".join([f"Nothing is wrong that is visible in the last {past}.", *scene.unseen])
    ahead = scene.wall_ahead_ns
    parts = " → ".join(f"{words.clock((one.began_ns + ahead) / 1e9)} {one.text}" for one in chain)
    return f"{parts}. {remedy}".strip()


def _clause(scene: Scene, finding: Finding) -> Clause:
    ahead, ended_ns = scene.wall_ahead_ns, finding.ended_ns
    return Clause(
        kind=finding.kind,
        at_seconds=(finding.began_ns + ahead) / 1e9,
        until_seconds=None if ended_ns is None else (ended_ns + ahead) / 1e9,
        text=finding.text,
        evidence=finding.evidence,
    )


WHY: Question[WhyAnswer] = Question(
    name="why",
    summary="The cause of what is wrong now, what it does, and what to do.",
    events=("StepCompleted",),
    folds=FOLDS,
    read=scene_of,
    finish=_answer,
    needs_state=False,
)
