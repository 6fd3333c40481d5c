"""`kvscope top`: the KV cache of servers in a terminal, live or from a recording."""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.answer_document import Connection, TargetName
from kvscope.options.duration import duration
from kvscope.options.generated import with_options
from kvscope.output import USAGE_ERROR, LineFormatter, Output, OutputOption, fail
from kvscope.places import SOURCE_HELP, check_target, server_found, source_named
from kvscope_engine.option import option
from kvscope_exporter.extras import lacking

if TYPE_CHECKING:
    from kvscope.replay.player import Player
    from kvscope.top.follower import PlaceStatus
    from kvscope.top.sources import RecordingSource, Source

_MAX_LOG_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayingOptions:
    """The moment of a recording that is shown first, and how it goes on."""

    at: str | None = option(
        None,
        "Moment of a recording at which it is paused: 12:50:40 or 2026-11-24T12:50:40 in UTC, a "
        "Unix time, +90s from the beginning, -5m from the end. Default: it plays from its "
        "beginning; with --once, its end.",
        "TIME",
    )
    speed: float = option(1.0, "Speed at which a recording plays.", least=0.01, most=1000)


@with_options
def top(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVER...|FILE",
            help=f"Any number of servers, or one recording. {SOURCE_HELP}",
            show_default=False,
        ),
    ] = None,
    target: TargetName = "",
    interval: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=duration(0.2, 3600), help="Time between two readings."
        ),
    ] = 2.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Print everything once, after two readings, and exit."),
    ] = False,
    output: OutputOption = Output.TEXT,
    playing: PlayingOptions = PlayingOptions(),
    connection: Connection = Connection(),
) -> None:
    """Watch the KV cache of servers in the terminal.

    The verdict of `kvscope why`, the pool by state and age, headline numbers, preemptions with
    victim, taker and cost, sequences, regret and other sizes of the pool, prefixes, tenants, and
    the memory of the GPUs. 80 columns and 24 lines suffice; more show more. The bottom line has the
    keys, ? explains everything.

    A server that does not answer is asked again until it does; its last values stay, marked as old.
    NO_COLOR switches colours off.

    Exit status: 0; 2 if standard output is not a terminal, or with --once or -o json if a server
    cannot be read.

    Example: kvscope top http://10.0.0.7:8010 http://10.0.0.8:8010

    Example: kvscope top incident.kvsr --at 03:12:40

    Example: kvscope top -o json | jq '.servers[].engines[].headline'
    """
    from kvscope.answer_document import fetch_document
    from kvscope.top.sources import UrlSource
    from kvscope_exporter.fetch.fetch import MAX_BYTES

    named = [source_named(place) for place in places or ()] or [server_found("top")]
    fetch = partial(fetch_document, connection=connection, max_bytes=MAX_BYTES)
    player = None
    sources: list[Source] = []
    first = named[0]
    urls = [place for place in named if isinstance(place, str)]
    if len(urls) == len(named):
        if playing.at is not None:
            raise fail("--at is for recordings; a server is shown as it is now")
        sources = [UrlSource(url, fetch, target) for url in dict.fromkeys(urls)]
    elif len(named) > 1 or isinstance(first, str):
        raise fail("a recording is shown alone, without servers or other recordings beside it")
    else:
        source = _recording(first, playing, interval, target, once=once or output.is_json)
        player, sources = source.player, [source]
    if once or output.is_json:
        _once(sources, interval, player, as_json=output.is_json)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise fail("standard output is not a terminal: use --once or -o json")
    if problem := lacking("the screen of top", "top"):
        raise fail(f"{problem}; --once and -o json do not")
    raise typer.Exit(_watch(sources, interval, player))


def _recording(
    path: Path, playing: PlayingOptions, interval: float, target: str, *, once: bool
) -> "RecordingSource":
    """A recording at its first moment, or playing."""
    from kvscope.replay.moment import moment_within
    from kvscope.replay.player import Player
    from kvscope.top.sources import RecordingSource
    from kvscope_exporter.recorder.format import RecordingError

    try:
        player = Player(path)
    except RecordingError as error:
        raise fail(error) from None
    file = player.file
    check_target(file, target)
    if file.problem is not None:
        typer.echo(f"kvscope: {path}: {file.problem}", err=True)
    moment = file.ends_ns if once else file.begins_ns
    if playing.at is not None:
        try:
            moment = moment_within(playing.at, file.begins_ns, file.ends_ns)
        except ValueError as error:
            raise fail(f"--at: {error}") from None
    if once:  # two readings, for rates
        player.seek(moment - round(interval * 1e9))
    else:
        player.seek(moment)
        if playing.at is None:
            player.play(playing.speed)
    return RecordingSource(path, player)


def _once(
    sources: "list[Source]", interval: float, player: "Player | None", *, as_json: bool
) -> None:
    from kvscope.top.document import document
    from kvscope.top.follower import Follower

    followers = [Follower(source, interval) for source in sources]
    for follower in followers:
        follower.step()
    if player is not None:
        player.seek(round(player.status().at * 1e9) + round(interval * 1e9))
    elif any(follower.seen.problem is None for follower in followers):
        time.sleep(interval)
    for follower in followers:
        if follower.seen.problem is None:
            follower.step()
    seen = [follower.seen for follower in followers]
    if as_json:
        typer.echo(document(seen))
    else:
        _print(seen, interval)
    problems = [each.problem for each in seen if each.problem is not None]
    for problem in problems:
        fail(problem)
    if problems:
        raise typer.Exit(USAGE_ERROR)


def _print(seen: "list[PlaceStatus]", interval: float) -> None:
    from rich.console import Console

    from kvscope.top.report import report

    console = Console(highlight=False)
    for line in report(seen, console.width, interval):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _watch(sources: "list[Source]", interval: float, player: "Player | None") -> int:
    from kvscope.top.app import Top

    for name in ("COLUMNS", "LINES"):  # which would hide changes of the terminal's size
        os.environ.pop(name, None)
    with _logs_held():
        screen = Top(sources, interval, player)
        status = screen.run(mouse=False)  # text is still selected as everywhere
    return status if status is not None else screen.return_code or 0


@contextmanager
def _logs_held() -> Iterator[None]:
    """Log lines would tear the screen; the last ones are printed afterwards instead."""
    held, root = deque[str](maxlen=_MAX_LOG_LINES), logging.getLogger()
    handler, before = logging.Handler(logging.WARNING), root.handlers[:]
    handler.emit = lambda record: held.append(LineFormatter().format(record))  # type: ignore[method-assign]
    root.handlers = [handler]
    try:
        yield
    finally:
        root.handlers = before
        with suppress(OSError):  # the terminal has gone
            for line in held:
                typer.echo(line, err=True)
