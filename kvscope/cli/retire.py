"""`kvscope admin forget`: the server that a sidecar watches has ended on purpose."""

from typing import Annotated

import typer

from kvscope.answer_document import Connection, TargetName
from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope.places import SERVER_HELP, server_asked
from kvscope_events.printable import printable

STILL_THERE = 1


@with_options
def retire(
    sidecar: Annotated[
        str | None, typer.Argument(metavar="SERVER", help=SERVER_HELP, show_default=False)
    ] = None,
    target: TargetName = "",
    connection: Connection = Connection(),
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

    url = server_asked(sidecar, "admin forget")
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
    for endpoint in answer.retired:
        typer.echo(printable(f"retired {endpoint}"))
    if answer.state is None:
        typer.echo("nothing of the server is shown until it is heard again")
    elif answer.retired:
        typer.echo(printable(f"the rest of the server is {answer.state}"))
    else:
        typer.echo(printable(f"nothing to retire: the server is {answer.state}"))
        raise typer.Exit(STILL_THERE)
