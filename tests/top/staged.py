"""Readings of an engine in simulated time, and of pages that a test writes."""

from dataclasses import dataclass, field
from typing import Any

from exporter.live.hub import Hub
from kvscope.diagnosis.scrape import ScrapedPage, parse_page
from kvscope.top.figures import EngineName, engines_of
from kvscope.top.follower import Follower, Seen
from kvscope.top.frame import frame
from kvscope.top.panels import PANELS
from kvscope.top.reading import (
    ASKED,
    SEQUENCES,
    Answers,
    ReadingError,
    ServerReading,
    Unknown,
    sequences_of,
    server_reading,
)
from kvscope.top.view import View
from tests.why.stage import GIB, Stage, chat, play

URL = "http://10.0.0.7:8010"
SIZES = [(80, 24), (100, 30), (200, 60), (33, 9)]


def page_of(text: str) -> ScrapedPage:
    return parse_page(text.encode(), "text/plain", URL)


def at_depth_of_page(text: str, at: float = 1000.0) -> ServerReading:
    """A server of which only its own page is read."""
    answers: Answers = {name: {} for name in (*(q.name for q, _ in ASKED), SEQUENCES)}
    return server_reading(URL, at, page_of(text), answers)


def with_answers(text: str, name: EngineName, at: float = 1000.0, **answers: Any) -> ServerReading:
    """An engine with these answers; others are unknown."""
    asked: dict[str, Any] = {q.name: Unknown("not asked here") for q, _ in ASKED}
    asked[SEQUENCES] = Unknown("not asked here")
    asked.update({question: {name: answer} for question, answer in answers.items()})
    return server_reading(URL, at, page_of(text), asked)


@dataclass
class Written:
    """A source whose readings, or problems, a test writes."""

    readings: list[list[ServerReading] | str] = field(default_factory=list)
    place: str = URL

    def read(self) -> list[ServerReading]:
        found = self.readings.pop(0)
        if isinstance(found, str):
            raise ReadingError(found)
        return found


def seen_of(*readings: list[ServerReading] | str) -> Seen:
    follower = Follower(Written(list(readings)), 2.0, lambda: None)
    for _ in readings:
        follower.step()
    return follower.seen


class StageSource:
    """The exporter of a simulated engine, read as a recording is."""

    place = URL

    def __init__(self, stage: Stage) -> None:
        self._exporter = stage.exporter
        self._hub = Hub(lambda _name: stage.exporter)
        self._stage = stage

    def read(self) -> list[ServerReading]:
        body, content_type = self._exporter.render("text/plain")
        page = parse_page(body, content_type, self.place)
        answers: dict[str, Any] = {
            question.name: {
                EngineName(each.model_name, each.engine): each.answer
                if each.answer is not None
                else Unknown(each.unknown or "")
                for each in self._exporter.answer(question).engines
            }
            for question, _ in ASKED
        }
        answers[SEQUENCES] = {
            name: sequences_of(self._hub.broadcast("", "/".join(name)).snapshot(blocks=False))
            for name in engines_of(page)
        }
        return [server_reading(self.place, self._stage.now_ns / 1e9, page, answers)]


def followed(stage: Stage, rate: float, seconds: int = 30, **load: Any) -> Seen:
    """A load that is looked at every two seconds."""
    follower = Follower(StageSource(stage), 2.0, lambda: None)
    follower.step()
    for number in range(seconds // 2):
        play(stage, chat(number, 2, rate=rate, **load), 2)
        follower.step()
    return follower.seen


def quiet() -> Seen:
    return followed(Stage(), rate=1.0)


def pressed() -> Seen:
    """More than the pool has room for."""
    return followed(Stage(num_blocks=90), rate=6.0, users=12)


def disturbed() -> Seen:
    """Another process takes memory of the GPU."""
    stage = Stage()
    play(stage, chat(1, 120), 120)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    return followed(stage, rate=1.5)


def lines_of(
    places: list[Seen], view: View | None = None, width: int = 80, height: int = 24
) -> list[str]:
    view = view or View(panels=PANELS)
    return [line.plain for line in frame(places, view, width, height, 2.0)]
