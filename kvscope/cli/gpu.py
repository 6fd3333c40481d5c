"""`kvscope admin gpu-release` and `resume`: let a GPU be reset while a kvscope watches it."""

from typing import Annotated, Literal

import typer

from kvscope.answer_document import Connection
from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope.places import SERVER_HELP, server_asked
from kvscope_events.printable import printable

_Server = Annotated[
    str | None,
    typer.Argument(
        metavar="SERVER",
        help=f"{SERVER_HELP} It is the one that reads the GPUs, on its metrics port where it "
        "has one. Without a key it answers the same machine only.",
        show_default=False,
    ),
]


@with_options
def gpu_release(server: _Server = None, connection: Connection = Connection()) -> None:
    """Release the GPUs, so that one can be reset.

    Also needed before you change the MIG mode. Until `kvscope admin gpu-resume`, kvscope makes no
    call to the driver and shows no figures of the GPUs.

    Exit status: 0; 1 if the driver still holds a call, so the release is yet to come; 2 if kvscope
    cannot be asked, or refuses.

    Example: kvscope admin gpu-release http://127.0.0.1:8010
    """
    _ask(server, "release", connection)


@with_options
def gpu_resume(server: _Server = None, connection: Connection = Connection()) -> None:
    """Read the GPUs again after `gpu-release`.

    Example: kvscope admin gpu-resume http://127.0.0.1:8010
    """
    _ask(server, "resume", connection)


def _ask(server: str | None, action: Literal["release", "resume"], connection: Connection) -> None:
    import msgspec

    from kvscope.answer_document import AnswerError, fetch
    from kvscope_exporter.fetch.error import JSON_ERRORS

    class Answer(msgspec.Struct, frozen=True):
        state: str

    name = f"gpu/{action}"
    url = server_asked(server, f"admin gpu-{action}")
    try:
        body = fetch(
            *(url, name),
            connection,
            content=b"{}",
        )
        state = msgspec.json.decode(body, type=Answer).state
    except AnswerError as error:
        raise fail(error) from None
    except JSON_ERRORS as error:
        raise fail(f"{url}/api/{name}: not an answer of this version of kvscope: {error}") from None
    typer.echo(printable(state))
    if state == "releasing":
        raise typer.Exit(1)
