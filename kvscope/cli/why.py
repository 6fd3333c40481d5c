"""`kvscope why`: the cause of what is wrong with a server, now or at a recorded moment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvscope.answer_document import Connection, TargetName
from kvscope.options.generated import with_options
from kvscope.output import Output, OutputOption, fail
from kvscope.places import SOURCE_HELP, check_target, server_found, source_named
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.cli.kept import Server

_WIDTH = 100


@with_options
def why(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SERVER|FILE", help=SOURCE_HELP, show_default=False),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Moment: 03:12:40 or 2026-11-24T03:12:40 in UTC, a Unix time; in a recording also "
            "+90s from the beginning, -5m from the end. Default: a server's present, or two "
            "minutes after the last mark of a recording.",
        ),
    ] = None,
    target: TargetName = "",
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Say what is wrong with a server, why, and what to do.

    Looks back half an hour for harm: late first tokens, requests that are given up, preemptions, a
    queue that stands. The cause is what the time of these requests was spent on, and what began
    with it, within a minute. Times are in UTC. What is over is reported for five minutes more. --at
    asks about an earlier moment, which a server answers from the recordings that it has saved, or
    from what it keeps, which is saved for it.

    Exit status: 0, whatever is wrong; 2 if the server cannot be asked or the file not be read.

    Example: kvscope why http://127.0.0.1:8010 --target qwen

    Example: kvscope why incident.kvsr --at 03:12:40
    """
    from kvscope.answer_document import AnswerError, decode, fetch
    from kvscope.cli.kept import Server
    from kvscope.replay.moment import parse_moment
    from kvscope_exporter.answers.diagnosis.question import WHY, WhyAnswer

    if at is not None:
        try:
            parse_moment(at, 0, 0)
        except ValueError as error:
            raise fail(f"--at: {error}") from None
    place = server_found("why") if source is None else source_named(source)
    if isinstance(place, Path):
        _of_recording(place, at, target, as_json=output.is_json)
        return
    if at is not None:
        if at.startswith(("+", "-")):
            raise fail(f"--at {at}: of a server, give a time of day or a date in UTC")
        _of_server_then(
            Server(url=place, target=target, connection=connection),
            at,
            as_json=output.is_json,
        )
        return
    try:
        body = fetch(place, WHY.name, connection, target=target)
        engines = decode(body, place, WHY.name, WhyAnswer)
    except AnswerError as error:
        raise fail(error) from None
    if output.is_json:
        typer.echo(body)
        return
    _print(engines)


def _of_server_then(server: "Server", at: str, *, as_json: bool) -> None:
    from kvscope.answer_document import AnswerError
    from kvscope.cli.kept import recording_of

    try:
        with recording_of(server, at) as path:
            _of_recording(path, at, "", as_json=as_json)
    except AnswerError as error:
        raise fail(error) from None


def _of_recording(path: Path, at: str | None, target: str, *, as_json: bool) -> None:
    import msgspec

    from kvscope.replay.moment import moment_asked, shown
    from kvscope_exporter.answers.diagnosis.question import WHY
    from kvscope_exporter.recorder.format import RecordingError
    from kvscope_exporter.recorder.reader import RecordingFile
    from kvscope_exporter.replay.playback import Playback

    try:
        playback = Playback(RecordingFile(path))
    except RecordingError as error:
        raise fail(error) from None
    file = playback.file
    check_target(file, target)
    if file.problem is not None:
        typer.echo(f"kvscope: {path}: {file.problem}", err=True)
    marks = [mark.wall_ns for mark in playback.index.marks]
    try:
        moment = moment_asked(at, file.begins_ns, file.ends_ns, marks)
    except ValueError as error:
        raise fail(f"--at: {error}") from None
    playback.to(moment)
    reply = playback.exporter.answer(WHY)
    playback.close()
    if as_json:
        typer.echo(msgspec.json.encode(reply))
        return
    typer.echo(f"At {shown(moment)} UTC:")
    _print(reply.engines)


def _print(engines: Sequence[Any]) -> None:
    """engines: each has model_name, engine, and an answer or the reason why it is unknown."""
    from kvscope.answer_text.why import why_text

    if not engines:
        typer.echo("nothing is known yet: no engine has identified itself")
    for engine in engines:
        if len(engines) > 1:
            typer.echo(printable(f"{engine.model_name}, engine {engine.engine}"))
        if engine.answer is None:
            typer.echo(printable(f"unknown: {engine.unknown or 'no reason is given'}"))
        else:
            for line in why_text(engine.answer, _WIDTH):
                typer.echo(line.plain)
