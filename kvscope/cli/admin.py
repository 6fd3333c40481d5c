"""`kvscope admin`: forget a server that was stopped on purpose; release and resume GPUs."""

from typing import Annotated, Literal

import typer

from kvscope.answer_document import Connection, TargetName
from kvscope.options.generated import with_options
from kvscope.output import Output, OutputOption, fail
from kvscope.places import SERVER_HELP, server_asked
from kvscope_events.printable import printable

STILL_THERE = 1
ServerArgument = Annotated[
    str | None, typer.Argument(metavar="SERVER", help=SERVER_HELP, show_default=False)
]


@with_options
def forget(
    server: ServerArgument = None,
    target: TargetName = "",
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Forget a server that was stopped on purpose.

    Hides servers that have stopped reporting, and resolves their alerts, until they report again.
    Servers that still report are not affected. The sidecar does not remember this when it is
    restarted: take a server that is gone for good out of its configuration.

    Exit status: 0; 1 if everything still reports; 2 if the sidecar cannot be asked, or refuses.

    Example: kvscope admin forget http://127.0.0.1:8010 --target llama
    """
    import msgspec

    from kvscope.answer_document import AnswerError, fetch
    from kvscope_exporter.fetch.error import JSON_ERRORS

    class Retired(msgspec.Struct, frozen=True):
        retired: list[str]
        state: str | None

    url = server_asked(server, "admin forget")
    try:
        body = fetch(
            url,
            "retire",
            connection,
            target=target,
            content=b"{}",
        )
        answer = msgspec.json.decode(body, type=Retired)
    except AnswerError as error:
        raise fail(error) from None
    except JSON_ERRORS as error:
        raise fail(f"{url}/api/retire: not an answer of this version of kvscope: {error}") from None
    if output.is_json:
        typer.echo(msgspec.json.encode(answer))
        raise typer.Exit(STILL_THERE if answer.state and not answer.retired else 0)
    for endpoint in answer.retired:
        typer.echo(printable(f"retired {endpoint}"))
    if answer.state is None:
        typer.echo("nothing of the server is shown until it is heard again")
    elif answer.retired:
        typer.echo(printable(f"the rest of the server is {answer.state}"))
    else:
        typer.echo(printable(f"nothing to retire: the server is {answer.state}"))
        raise typer.Exit(STILL_THERE)


@with_options
def gpu_release(
    server: ServerArgument = None,
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Release the GPUs, so that one can be reset.

    Also needed before you change the MIG mode. Until `kvscope admin gpu-resume`, kvscope makes no
    call to the driver and shows no figures of the GPUs.

    Ask the kvscope that reads the GPUs, on its metrics port where it has one. Without a token it
    answers the same machine only.

    Exit status: 0; 1 if the driver still holds a call, so the release is yet to come; 2 if kvscope
    cannot be asked, or refuses.

    Example: kvscope admin gpu-release http://127.0.0.1:8010
    """
    _ask(server, "release", connection, output)


@with_options
def gpu_resume(
    server: ServerArgument = None,
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Read the GPUs again after `gpu-release`.

    Example: kvscope admin gpu-resume http://127.0.0.1:8010
    """
    _ask(server, "resume", connection, output)


def _ask(
    server: str | None,
    action: Literal["release", "resume"],
    connection: Connection,
    output: Output,
) -> None:
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
    typer.echo(msgspec.json.encode({"state": state}) if output.is_json else printable(state))
    if state == "releasing":
        raise typer.Exit(1)
