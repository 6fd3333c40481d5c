"""`kvscope tenants`: demand on a fleet by tenant and adapter, and how long each waits."""

from typing import Annotated

import typer
from rich.console import Console

from kvscope.answer_document import Connection, TargetName
from kvscope.options.generated import with_options
from kvscope.output import USAGE_ERROR, Output, OutputOption, fail
from kvscope.places import SERVER_HELP, server_found, server_named


@with_options
def tenants(
    servers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVER...", help=f"Any number of them. {SERVER_HELP}", show_default=False
        ),
    ] = None,
    target: TargetName = "",
    top: Annotated[int, typer.Option(min=1, help="Tenants to print, the largest ones.")] = 20,
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """List tenants and LoRA adapters of servers by use of the cache.

    Sums over all the servers named, since their exporters started.

    A tenant is what requests name as their `user`, shown as the first eight digits of its SHA-256.
    Servers list their fifty largest ones.

    Exit status: 0; 2 if a server cannot be asked, after the table of the others.

    Example: kvscope tenants http://10.0.0.7:8000 http://10.0.0.8:8000
    """
    import msgspec

    from kvscope.answer_document import AnswerError, decode, fetch
    from kvscope.answer_text.tenants import tenants_text
    from kvscope_exporter.answers.tenants import TENANTS, TenantsAnswer

    answers: list[TenantsAnswer] = []
    failed = False
    urls = [server_named(each) for each in servers or ()] or [server_found("tenants")]
    for url in urls:
        try:
            body = fetch(url, TENANTS.name, connection, target=target)
            engines = decode(body, url, TENANTS.name, TenantsAnswer)
        except AnswerError as error:
            fail(error)
            failed = True
            continue
        for engine in engines:
            if engine.answer is None:
                fail(f"{url}: {engine.unknown or 'no reason is given'}")
                failed = True
            else:
                answers.append(engine.answer)
    if output.is_json:
        typer.echo(msgspec.json.encode(answers))
    elif answers:
        console = Console(highlight=False)
        for each in tenants_text(answers, top):
            console.print(each)
    if failed:
        raise typer.Exit(USAGE_ERROR)
