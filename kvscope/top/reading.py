"""One reading of a server: its page and its answers, by engine; each is of one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from kvscope.answer_document import AnswerError
from kvscope.doctor.scrape import ScrapedPage
from kvscope.replay.player import Status
from kvscope.top.figures import EngineName, Figures, engines_of
from kvscope_events.printable import quoted
from kvscope_exporter.answers.diagnosis.question import WHY, WhyAnswer
from kvscope_exporter.answers.preemptions import PREEMPTIONS, Preemptions
from kvscope_exporter.answers.prefixes import PREFIXES, PrefixesAnswer
from kvscope_exporter.answers.question import Question
from kvscope_exporter.answers.residency import RESIDENCY, ResidencyAnswer
from kvscope_exporter.answers.tenants import TENANTS, TenantsAnswer
from kvscope_exporter.answers.whatif import WHATIF, WhatIf
from kvscope_exporter.fetch.error import JSON_ERRORS
from kvscope_exporter.live.documents import MAGIC, Pool, SequenceRow

ASKED: tuple[tuple[Question[Any], type[Any]], ...] = (
    (WHY, WhyAnswer),
    (PREEMPTIONS, Preemptions),
    (WHATIF, WhatIf),
    (RESIDENCY, ResidencyAnswer),
    (PREFIXES, PrefixesAnswer),
    (TENANTS, TenantsAnswer),
)
"""The questions of each reading, and the types of their answers."""
SEQUENCES = "sequences"
"""Among the answers, though `/live` has it and not `/api`."""
_PAGE_ONLY = "only this server's own page is read, which does not have it"


class UnknownAnswer(NamedTuple):
    """The reason why there is no answer."""

    reason: str


class SequencesAnswer(msgspec.Struct, frozen=True):
    """The sequences of one engine, those that ended lately among them."""

    now_ms: int
    """The engine's clock, on which the rows' changes of state are."""
    block_size: int
    sequences: list[SequenceRow]


def sequences_of(snapshot: bytes) -> SequencesAnswer:
    """From `/live/snapshot`. Raises AnswerError."""
    begin = len(MAGIC) + 4
    end = begin + int.from_bytes(snapshot[len(MAGIC) : begin], "little")
    try:
        document = snapshot[begin:end] if snapshot.startswith(MAGIC) else b""
        head = msgspec.json.decode(document, type=_Head)
    except JSON_ERRORS as error:
        reason = quoted(str(error))
        raise AnswerError(f"no snapshot of this version of kvscope: {reason}") from None
    return SequencesAnswer(head.now_ms, head.pool.block_size, head.sequences)


class _Head(msgspec.Struct):
    """The part of a snapshot's head that is shown."""

    now_ms: int
    pool: Pool
    sequences: list[SequenceRow]


Answers = Mapping[str, Mapping[EngineName, Any | UnknownAnswer] | UnknownAnswer]
"""By question: the answers of all engines, or the reason for their absence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One engine at one moment."""

    server: str
    name: EngineName
    at: float
    """Unix time; in a recording, that of its moment."""
    figures: Figures
    answers: Mapping[str, Any | UnknownAnswer]

    @property
    def key(self) -> tuple[str, EngineName]:
        return self.server, self.name

    @property
    def title(self) -> str:
        model = quoted(self.name.model_name) or "a model without a name"
        return f"{model} · engine {quoted(self.name.engine)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """One server at one moment."""

    server: str
    """URL or file, and the name by which a sidecar knows it."""
    at: float
    state: str
    """kvscope's word for the server's state; empty: its page does not have it."""
    engines: Sequence[EngineReading]
    player: Status | None = None
    """The position in a recording; None: it is read live."""


def server_reading(
    server: str, at: float, page: ScrapedPage, answers: Answers, player: Status | None = None
) -> ServerReading:
    """Split a page and answers by engine."""
    names = dict.fromkeys(engines_of(page))
    for reply in answers.values():
        if not isinstance(reply, UnknownAnswer):
            names.update(dict.fromkeys(reply))
    engines = [
        EngineReading(
            server=server,
            name=name,
            at=at,
            figures=Figures(page, name),
            answers={question: _of(reply, name) for question, reply in answers.items()},
        )
        for name in names
    ]
    states = [labels["state"] for labels, on in page.samples("kvscope_server_state") if on]
    return ServerReading(
        server=server, at=at, state=states[0] if states else "", engines=engines, player=player
    )


def _of(
    reply: Mapping[EngineName, Any | UnknownAnswer] | UnknownAnswer, name: EngineName
) -> Any | UnknownAnswer:
    return reply if isinstance(reply, UnknownAnswer) else reply.get(name, UnknownAnswer(_PAGE_ONLY))
