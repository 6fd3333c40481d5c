"""`kvscope rec play`: a recorded server, at any moment of its recording."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.options.listen import PageAccess
from kvscope.output import configure_logging, fail
from kvscope_engine.sizing import format_bytes
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope_exporter.recorder.reader import RecordingFile


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, *.kvsr.")],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Print the metrics page of this moment: 12:50:40 or 2026-11-24T12:50:40 in UTC, "
            "a Unix time, +90s from the beginning, -5m from the end.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Serve pages and answers here; 0: any free port."
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Speed at which a served recording plays.")
    ] = 1.0,
) -> None:
    """Show a server as it was at a moment that was recorded.

    kvscope sidecar, run and engine serve record all the time: the last 15 minutes, in memory. A
    recording is saved when something breaks, and by POST /api/recordings; GET /api/recordings
    lists them.

    With --port, GET /api/replay says where the player is; POST /api/replay/play, pause,
    seek?at=TIME and step?by=N move it. Without --at and --port, print what the recording holds.

    Example: kvscope rec play incident.kvsr --at 03:12:40

    Example: kvscope rec play incident.kvsr --port 8020
    """
    from kvscope.replay.moment import moment_within, shown
    from kvscope.replay.player import Player
    from kvscope_exporter.recorder.format import RecordingError

    try:
        player = Player(file)
    except RecordingError as error:
        raise fail(error) from None
    recording = player.file
    if recording.problem is not None:
        typer.echo(f"kvscope: {file}: {recording.problem}", err=True)
    if at is not None:
        try:
            moment = moment_within(at, recording.begins_ns, recording.ends_ns)
        except ValueError as error:
            raise fail(f"--at: {error}") from None
        if port is None:
            player.seek(moment)
            typer.echo(player.render()[0].decode(), nl=False)
            return
        player.seek(moment)
    if port is None:
        _summarise(player.file, file)
        for when, trigger, text in player.status().marks:
            typer.echo(printable(f"  {shown(round(when * 1e9))}  {trigger}: {text}"))
        return
    _serve(player, host, port, speed, playing=at is None)


def _summarise(recording: "RecordingFile", file: Path) -> None:
    from kvscope.replay.moment import shown

    seconds = (recording.ends_ns - recording.begins_ns) / 1e9
    opened = recording.opened
    size = format_bytes(file.stat().st_size)
    typer.echo(
        printable(
            f"{file}: {opened.server}, {shown(recording.begins_ns)} to "
            f"{shown(recording.ends_ns)} UTC ({seconds:,.0f} s), {size}, by kvscope {opened.build}"
        )
    )


def _serve(player: "object", host: str, port: int, speed: float, *, playing: bool) -> None:
    from kvscope.replay.app import replay_app
    from kvscope.replay.player import Player
    from kvscope.serving.listen import listening, url_of
    from kvscope.serving.protection import Protection
    from kvscope.serving.run import AppServer
    from kvscope.serving.signals import signals_end
    from kvscope_exporter.web.access import Access

    assert isinstance(player, Player)
    configure_logging()
    protection = Protection(PageAccess(), [host])
    with signals_end() as ending, listening(host, port) as listener:
        url = url_of(host, listener.getsockname()[1], tls=False)
        typer.echo(f"{url}/metrics; where it is: {url}/api/replay", err=True)
        player.start()
        if playing:
            player.play(speed)
        AppServer(Access(replay_app(player), protection.access), tls=None).run_until_end(
            listener, ending
        )
    player.close()
