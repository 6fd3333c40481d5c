"""`kvscope observer`: the observer as a folder, its switch, and whether it fits a server."""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvscope.options.duration import duration
from kvscope.output import fail
from kvscope_events.printable import printable

EXIT_OTHERWISE = 1
DEFAULT_SECONDS = 10.0
_OF_ENGINE = re.compile(r"/engine-\d+\.sock$")


_Endpoint = Annotated[
    str | None,
    typer.Argument(
        metavar="ENDPOINT",
        help="Where the server publishes its events: ipc:///DIRECTORY/NAME.sock, or a folder of "
        "sockets (also that of a `kvscope run`), which means all its engines. Default: the only "
        "one in the run directory.",
        show_default=False,
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        metavar="DURATION",
        parser=duration(0.1),
        help="Time for each engine to carry the order out.",
    ),
]


def install(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder to write; an older copy in it is replaced.",
        ),
    ],
) -> None:
    """Write the observer into a folder for a vLLM or an SGLang.

    For a server in a container or under systemd: mount the folder, and set the variables that this
    command prints.

    Example: eval "$(kvscope observer install ./kvscope-observer)"
    """
    _write(directory)


def off(endpoint: _Endpoint = None, timeout: _Timeout = DEFAULT_SECONDS) -> None:
    """Switch the observer of a running vLLM or SGLang off.

    It restores the server's own methods between two steps; the server is not restarted. Run it as
    the server's user, on its machine or in its container. A restart of the server starts its
    observer again.

    Exit status: 1 if an engine has not done it, or cannot: the reason is printed.

    Example: kvscope observer off /run/user/1000/kvscope/run-8010
    """
    _order(endpoint, on=False, seconds=timeout)


def on(endpoint: _Endpoint = None, timeout: _Timeout = DEFAULT_SECONDS) -> None:
    """Switch an observer on again that was switched off."""
    _order(endpoint, on=True, seconds=timeout)


def check(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="An environment, or a folder of packages. Default: the packages of this Python.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Say whether the vLLM or SGLang of an environment can be observed.

    Reads its sources, and names the methods that the observer looks for and does not find. Nothing
    is imported or started.

    Exit status: 1 if one of them cannot be observed, or none is there.

    Example: kvscope observer check /opt/venv
    """
    from kvscope_events.observable import main

    raise typer.Exit(main([] if place is None else [str(place)]))


def _order(place: str | None, *, on: bool, seconds: float) -> None:
    from kvscope.doctor.asking import UnreachableError, endpoints_of, place_here
    from kvscope.doctor.switching import switch
    from kvscope_events.wire.endpoint import EndpointError

    wanted = "on" if on else "off"
    try:
        places = endpoints_of(place or place_here())
    except UnreachableError as error:
        raise fail(error) from None
    if len(places) > 1:  # workers and API servers have nothing in a step
        places = [one for one in places if _OF_ENGINE.search(one)] or places
    failed = False
    for one in places:
        try:
            found = switch(one, on=on, seconds=seconds)
        except (EndpointError, UnreachableError) as error:
            failed = True
            fail(error)
            continue
        if found.state == wanted:
            typer.echo(f"{one}: {wanted} (process {found.pid})")
            continue
        failed = True
        if found.state == "stopped":
            fail(f"{one}: its observer has stopped by a fault of its own: the server's log has it")
        elif found.state == "cannot be switched":
            fail(f"{one}: it cannot be switched: {printable(found.problem)}")
        elif found.problem:
            fail(f"{one}: it stays {found.state}: {printable(found.problem)}")
        else:
            fail(f"{one}: not yet {wanted} after {seconds:g} s; it will be once the step has ended")
    if failed:
        raise typer.Exit(EXIT_OTHERWISE)


def _write(directory: Path) -> None:
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
