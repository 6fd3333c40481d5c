"""`/api/why`: the cause of what is wrong, what followed from it, and what to do."""

import msgspec

from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.causes import Confidence, chain_of, confidence_of
from kvscope_exporter.answers.diagnosis.course import SLICE_NS
from kvscope_exporter.answers.diagnosis.demand import content, load, pool
from kvscope_exporter.answers.diagnosis.engine import engine
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.gpus import neighbours, slowed
from kvscope_exporter.answers.diagnosis.harm import harm, speed
from kvscope_exporter.answers.diagnosis.scene import FOLDS, Scene, scene_of
from kvscope_exporter.answers.question import Question
from kvscope_exporter.catalogue.incident import PHRASES, Kind

_DETECTORS = (neighbours, slowed, load, pool, content, speed, harm, engine)
_EXCLUDED: tuple[Kind, ...] = (
    *("neighbour", "slowed_down", "restarted", "cache_reset", "new_content", "cache_too_small"),
    *("retries", "more_requests", "longer_prompts", "longer_answers", "pool_full", "slow_steps"),
)


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
    """Causes that were looked for and not seen."""
    seconds: float
    """Length of the past that it looked at."""


def _answer(scene: Scene) -> WhyAnswer:
    findings = [finding for detect in _DETECTORS for finding in detect(scene)]
    chain = chain_of(findings)
    found = {finding.kind for finding in findings}
    unseen = [] if scene.gpus else ["neighbour", "slowed_down"]
    excluded = [PHRASES[kind] for kind in _EXCLUDED if kind not in found and kind not in unseen]
    return WhyAnswer(
        sentence=_sentence(scene, chain, excluded),
        chain=[_clause(scene, finding) for finding in chain],
        confidence=confidence_of(chain) if chain else None,
        remedy=next((finding.remedy for finding in chain if finding.remedy), ""),
        excluded=excluded,
        seconds=len(scene.course.slices) * SLICE_NS / 1e9,
    )


def _sentence(scene: Scene, chain: list[Finding], excluded: list[str]) -> str:
    if not chain:
        seconds = len(scene.course.slices) * SLICE_NS / 1e9
        past = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        return f"Nothing is wrong that is visible in the last {past}."
    ahead = scene.wall_ahead_ns
    parts = " → ".join(f"{words.clock((one.began_ns + ahead) / 1e9)} {one.text}" for one in chain)
    remedy = next((finding.remedy for finding in chain if finding.remedy), "")
    if confidence_of(chain) == "low":
        parts += f". No cause is visible; not seen: {', '.join(excluded)}"
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
    summary="The cause of what is wrong now, what followed from it, and what to do.",
    events=("StepCompleted",),
    folds=FOLDS,
    read=scene_of,
    finish=_answer,
    needs_state=False,
)
