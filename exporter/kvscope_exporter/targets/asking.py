"""Questions to one engine: whether it can answer now, and which folds are read for it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvscope_exporter.answers.question import ProcessMemory, Question, UnknownError
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources import Source
from kvscope_exporter.sources.pipeline import Pipeline
from kvscope_exporter.state import Folds, HelloTracker


class PageQuestions(NamedTuple):
    """Questions that a page asks of its engines, at the moment at which their parts are read."""

    questions: Sequence[Question[Any]]
    machine: Machine
    processes: Sequence[ProcessMemory]


def readable(
    question: Question[Any],
    folds: Folds,
    source: Source,
    pipeline: Pipeline,
    tells: frozenset[str],
) -> Folds:
    """The folds that it reads, which are held meanwhile; of an engine that has introduced itself.

    Raises UnknownError.
    """
    if question.needs_state and not (source.up and source.state_known):
        raise UnknownError("the engine's state is not known: it is not connected, or lost")
    stopped = folds[HelloTracker].stopped
    if question.needs_state and stopped is not None:
        raise UnknownError(f"its observer is off: {stopped}")
    unavailable = question.unavailable(tells)
    if unavailable:
        raise UnknownError(f"this server does not report {', '.join(unavailable)}")
    read = folds.only(question.folds)
    failed = [fold.name for fold in (folds[HelloTracker], *read) if pipeline.failed(fold)]
    if failed:
        raise UnknownError(f"folds {', '.join(failed)} failed and were given up")
    return read
