"""`kvscope observer stacks`: where the threads of an observed server are."""

from typing import Annotated

import typer

from kvscope.options.duration import duration
from kvscope.output import fail
from kvscope_events.printable import printable

EXIT_MISSING = 1
DEFAULT_SECONDS = 10.0


def stacks(
    endpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="ENDPOINT",
            help="Where the server publishes its events: ipc:///DIRECTORY/NAME.sock, "
            "tcp://127.0.0.1:PORT, or a folder of sockets (also that of a `kvscope run`), which "
            "means every process that publishes there. Default: the only one in the run directory.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=duration(0.1), help="Time for each process to answer."
        ),
    ] = DEFAULT_SECONDS,
    held: Annotated[
        bool,
        typer.Option(
            "--held",
            help="Have a process that does not answer, because native code holds its interpreter, "
            "write its stacks to its own log. One that is only slow may be ended by it.",
        ),
    ] = False,
) -> None:
    """Print where the threads of an observed vLLM are.

    The Python stacks of its engine cores and workers, or of another server.

    The server goes on: a thread of kvscope in each process answers, also while no step ends.
    Run it as the server's user, on its machine or in its container.

    Exit status: 1 if a process has not answered.

    Example: kvscope observer stacks /run/user/1000/kvscope/run-8010
    """
    from kvscope.doctor.asking import NoAnswerError, UnreachableError, endpoints_of, place_here
    from kvscope.doctor.remote_stacks import ask
    from kvscope_events.wire.endpoint import EndpointError

    try:
        places = endpoints_of(endpoint or place_here())
    except UnreachableError as error:
        raise fail(error) from None
    missing = 0
    shown: dict[int, str] = {}  # an engine core that is its own worker is one process
    for place in places:
        try:
            found = ask(place, timeout)
        except (EndpointError, UnreachableError) as error:
            missing += 1
            fail(error)
            if held and isinstance(error, NoAnswerError):
                _write_held(place)
            continue
        if found.pid in shown:
            typer.echo(f"== {place}: process {found.pid}, as at {shown[found.pid]}\n")
            continue
        shown[found.pid] = place
        typer.echo(f"== {place}: process {found.pid}\n{printable(found.text)}")
    if missing:
        raise typer.Exit(EXIT_MISSING)


def _write_held(place: str) -> None:
    from kvscope.doctor.asking import UnreachableError
    from kvscope.doctor.remote_stacks import write_held
    from kvscope_events.wire.endpoint import EndpointError

    try:
        pid = write_held(place)
    except (EndpointError, UnreachableError) as error:
        fail(error)
    else:
        typer.echo(f"== {place}: process {pid} was asked to write them to its own log")
