"""A question to all engines of a page; one that cannot answer says why."""

import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from kvscope_exporter.answers.question import ProcessMemory, Question, UnknownError
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.target import Target

logger = logging.getLogger(__name__)
ELSEWHERE = "its scheduler runs on another host, whose page answers this; here are workers only"


class EngineReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine's answer, or the reason why it has none."""

    model_name: str
    engine: str
    answer: Any = None
    unknown: str | None = None
    elsewhere: bool = False
    """Whether another host's page has this engine, which counts there."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server's answers; without engines nothing is known about it yet."""

    question: str
    engines: list[EngineReply]
    unknown: str | None = None
    """The reason why there are no engines, where one is known."""


def memory_of(targets: Iterable[Target]) -> list[ProcessMemory]:
    """Memory reports of one server's processes."""
    return [report for target in targets if (report := target.memory()) is not None]


def ask(question: Question[Any], targets: Iterable[Target], machine: Machine) -> Reply:
    """The answers of all engines among these targets, each of one moment."""
    engines = []
    targets = list(targets)
    processes = memory_of(targets)
    for target in targets:
        target.pipeline.drain()  # an engine may have just sent its Hello
        hello = target.hello
        if hello is None or hello.worker is not None or target.is_content:
            continue
        answer, unknown = None, None
        try:
            answer = target.answer(question, machine, processes)
        except UnknownError as error:
            unknown = str(error)
        except Exception:
            logger.exception("the question %s failed", question.name)
            unknown = "it failed here: the log of this process has the reason"
        engines.append(
            EngineReply(
                model_name=hello.model_name, engine=hello.engine, answer=answer, unknown=unknown
            )
        )
    engines += _elsewhere(targets)
    return Reply(question=question.name, engines=engines)


def _elsewhere(targets: Iterable[Target]) -> list[EngineReply]:
    """Engines of which this host has workers only."""
    labels = {target.labels: None for target in targets if target.hello and target.hello.remote}
    return [
        EngineReply(model_name=model_name, engine=engine, unknown=ELSEWHERE, elsewhere=True)
        for model_name, engine in labels
    ]
