"""A side of a comparison: a recording or a server, with the course of each of its engines."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvscope.answer_document import AnswerError, Connection, EngineAnswer, decode, fetch
from kvscope.output import fail
from kvscope.places import check_target, source_named
from kvscope_exporter.answers.course import COURSE, CourseAnswer

if TYPE_CHECKING:
    from kvscope_exporter.replay.playback import Playback


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side as it was named on the command line."""

    letter: str
    source: str
    at: str | None
    target: str


def engines_of(side: Side, connection: Connection) -> list[EngineAnswer[CourseAnswer]]:
    """The courses of all engines of a side. Raises typer.Exit(2)."""
    option = side.letter.lower()
    place = source_named(side.source)
    if isinstance(place, Path):
        return _recorded(side, place)
    if side.at is not None:
        raise fail(f"--at-{option}: {side.source} is a server, which is asked about now")
    try:
        body = fetch(place, COURSE.name, connection, target=side.target)
        return decode(body, place, COURSE.name, CourseAnswer)
    except AnswerError as error:
        raise fail(f"{error}".replace("--target ", f"--target-{option} ")) from None


def _recorded(side: Side, path: Path) -> list[EngineAnswer[CourseAnswer]]:
    import msgspec

    from kvscope_exporter.recorder.format import RecordingError
    from kvscope_exporter.recorder.reader import RecordingFile
    from kvscope_exporter.replay.playback import Playback

    try:
        playback = Playback(RecordingFile(path))
    except RecordingError as error:
        raise fail(error) from None
    check_target(playback.file, side.target, f"--target-{side.letter.lower()}")
    if playback.file.problem is not None:
        typer.echo(f"kvscope: {side.source}: {playback.file.problem}", err=True)
    playback.to(_moment(side, playback))
    reply = playback.exporter.answer(COURSE)
    playback.close()
    build = playback.file.opened.build
    return [
        EngineAnswer(
            model_name=engine.model_name,
            engine=engine.engine,
            answer=None
            if engine.answer is None
            else msgspec.structs.replace(
                engine.answer, facts={**engine.answer.facts, "kvscope": build}
            ),
            unknown=engine.unknown,
        )
        for engine in reply.engines
    ]


def _moment(side: Side, playback: "Playback") -> int:
    from kvscope.replay.moment import moment_within

    file = playback.file
    if side.at is None:
        return file.ends_ns
    try:
        return moment_within(side.at, file.begins_ns, file.ends_ns)
    except ValueError as error:
        raise fail(f"--at-{side.letter.lower()}: {error}") from None
