"""`kvscope observer`: the observer as a folder, for servers that `kvscope run` does not start.

And the switch of an observer that runs.
"""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvscope.output import fail
from kvscope_events.printable import printable

ORDERS = ("off", "on")
EXIT_OTHERWISE = 1
DEFAULT_SECONDS = 10.0
_OF_ENGINE = re.compile(r"/engine-\d+\.sock$")


def observer(
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|off|on",
            help="Folder to write; an older copy in it is replaced. Or an order to a running "
            "observer. With --check: an environment, or a folder of packages.",
            show_default=False,
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="ENDPOINT",
            help="With off and on: where the server publishes its events: "
            "ipc:///DIRECTORY/NAME.sock, or a folder of sockets (also that of a `kvscope run`), "
            "which means all its engines. Default: the only one in the run directory.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Say whether the vLLM or SGLang of an environment can be observed. Nothing is "
            "imported or started.",
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Time for each engine to carry the order out."
        ),
    ] = DEFAULT_SECONDS,
) -> None:
    """Write the observer into a folder for a vLLM or an SGLang.

    For a server in a container or under systemd: mount the folder, and set the variables that this
    command prints.

    With off and on (./off is a folder of that name): have the observer of a running vLLM or SGLang
    put the server's own methods back, and go on later, each between two steps. The server is not
    restarted. Run it as the server's user, on its machine or in its container; a restart of the
    server starts its observer again.

    With --check: read the sources of the vLLM or SGLang in DIR (default: in the packages of this
    Python), and name the methods that the observer looks for and does not find.

    Exit status of off and on: 1 if an engine has not done it, or cannot: the reason is printed. Of
    --check: 1 if one of them cannot be observed, or none is there.

    Example: eval "$(kvscope observer ./kvscope-observer)"

    Example: kvscope observer --check /opt/venv

    Example: kvscope observer off /run/user/1000/kvscope/run-8010
    """
    if check:
        from kvscope_events.observable import main

        raise typer.Exit(main([] if directory is None else [directory]))
    if directory is None:
        raise fail("name the folder to write: kvscope observer DIR")
    if directory in ORDERS:
        _order(endpoint, on=directory == "on", seconds=timeout)
    elif endpoint is not None:
        raise fail(f"{directory!r} {endpoint!r}: with an ENDPOINT the order is off or on")
    else:
        _write(Path(directory))


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
