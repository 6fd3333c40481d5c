"""`kvscope observer`: the observer as a folder, for servers that `kvscope run` does not start."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvscope.output import fail


def observer(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder to write; an older copy in it is replaced.", file_okay=False
        ),
    ],
) -> None:
    """Write the observer into a folder for a vLLM or an SGLang.

    For a server in a container or under systemd: mount the folder, and set the variables that this
    command prints.

    Example: eval "$(kvscope observer ./kvscope-observer)"
    """
    from kvscope.run.plugin_folder import PLUGIN, PLUGINS_VARIABLES, write_plugin_folder
    from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE, SERVERS
    from kvscope_events.observers.endpoints import directory as directory_of
    from kvscope_events.wire.endpoint import EndpointError
    from kvscope_events.wire.run_directory import RUN_VARIABLE, run_directory

    folder = directory.resolve()
    try:
        write_plugin_folder(folder)
    except EndpointError as error:
        raise fail(error) from None
    except OSError as error:
        raise fail(f"{folder}: cannot write: {error.strerror}; name another DIR") from None
    path = shlex.quote(str(folder))
    typer.echo(f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    # Without a directory of its own, a server takes one of its name in the run directory.
    if os.environ.get(DIRECTORY_VARIABLE):
        typer.echo(f"export {DIRECTORY_VARIABLE}={shlex.quote(directory_of())}")
    else:
        typer.echo(f"export {RUN_VARIABLE}={shlex.quote(run_directory())}")
    for variable, is_list in PLUGINS_VARIABLES.items():
        allowed = f"${{{variable}{is_list}}}"
        typer.echo(
            f'[ -z "{allowed}" ] || export {variable}="${{{variable}:+${variable},}}{PLUGIN}"'
        )
    for word, sockets in zip(
        ("then", "or"), dict.fromkeys(map(directory_of, SERVERS)), strict=False
    ):
        typer.echo(f"# {word}: kvscope sidecar --events 'ipc://{sockets}/*'")
