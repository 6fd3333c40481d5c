"""Readings of an engine in simulated time, and of pages that a test writes."""

from functools import cache
from typing import Any

from kvscope.answer_document import AnswerError
from kvscope.doctor.scrape import parse_page
from kvscope.top.figures import EngineName, engines_of
from kvscope.top.follower import Follower, PlaceStatus
from kvscope.top.reading import (
    ASKED,
    SEQUENCES,
    ServerReading,
    UnknownAnswer,
    sequences_of,
    server_reading,
)
from kvscope.top.report import report
from kvscope_exporter.live.hub import Hub
from tests.why.stage import GIB, Stage, chat, play

URL = "http://10.0.0.7:8010"


def reading_of(text: str, at: float = 1000.0, **answers: Any) -> ServerReading:
    """A server with that page; answers that are not given are unknown."""
    page = parse_page(text.encode(), "text/plain", URL)
    names = [*(question.name for question, _ in ASKED), SEQUENCES]
    unknown = {name: UnknownAnswer("not asked here") for name in names}
    return server_reading(URL, at, page, {**unknown, **answers})


class Written:
    """A source whose readings, or problems, a test writes; the last one stays."""

    def __init__(self, *readings: list[ServerReading] | str, place: str = URL) -> None:
        self.readings = list(readings)
        self.place = place

    def read(self) -> list[ServerReading]:
        found = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(found, str):
            raise AnswerError(found)
        return found


class StageSource:
    """The exporter of a simulated engine, read as a recording is."""

    place = URL

    def __init__(self, stage: Stage) -> None:
        self._exporter = stage.exporter
        self._hub = Hub(lambda _name: stage.exporter)
        self._stage = stage

    def read(self) -> list[ServerReading]:
        page = parse_page(*self._exporter.render("text/plain"), self.place)
        answers: dict[str, Any] = {
            question.name: {
                EngineName(each.model_name, each.engine): each.answer
                for each in self._exporter.answer(question).engines
            }
            for question, _ in ASKED
        }
        answers[SEQUENCES] = {
            name: sequences_of(self._hub.broadcast("", "/".join(name)).snapshot(blocks=False))
            for name in engines_of(page)
        }
        return [server_reading(self.place, self._stage.now_ns / 1e9, page, answers)]


def followed(stage: Stage, rate: float, **load: Any) -> PlaceStatus:
    """Half a minute of a load that is looked at every two seconds."""
    follower = Follower(StageSource(stage), 2.0)
    follower.step()
    for number in range(15):
        play(stage, chat(number, 2, rate=rate, **load), 2)
        follower.step()
    return follower.seen


@cache
def quiet() -> PlaceStatus:
    return followed(Stage(), rate=1.0)


@cache
def pressed() -> PlaceStatus:
    """More than the pool has room for."""
    return followed(Stage(num_blocks=90), rate=6.0, users=12)


@cache
def disturbed() -> PlaceStatus:
    """Another process takes memory of the GPU."""
    stage = Stage()
    play(stage, chat(1, 120), 120)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    return followed(stage, rate=1.5)


def text_of(seen: PlaceStatus, width: int = 80) -> str:
    """As --once prints it."""
    return "\n".join(line.plain for line in report([seen], width, 2.0))


def seen_of(*readings: list[ServerReading] | str) -> PlaceStatus:
    follower = Follower(Written(*readings), 2.0)
    for _ in readings:
        follower.step()
    return follower.seen
