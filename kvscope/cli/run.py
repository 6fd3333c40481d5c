"""`kvscope run`: runs a command with the observer on its path, and serves its metrics."""

import logging
import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.options.generated import with_options
from kvscope.options.gpu_devices import GpuOptions, polling
from kvscope.options.listen import SIDECAR_PORT, Address, PageAccess
from kvscope.options.recording import RecordingOptions, flight_of, in_flight
from kvscope.options.telemetry import COMPAT_HELP, NO_SETS, parse_compat
from kvscope.output import configure_logging, fail
from kvscope.run.api_server import api_server_of, kind_of
from kvscope.run.child import Child, CommandError, signal_waiting, signals_held
from kvscope.serving.protection import Protection
from kvscope.serving.stacks import show_last_stacks
from kvscope_engine.option import option

if TYPE_CHECKING:
    from kvscope.run.background_server import Beside

TICK_SECONDS = 0.5
HINT_SECONDS = 300.0
"""Importing a server takes a minute or two from a slow disk; vLLM's workers report before they
load."""

logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command line of a run, before the command."""

    address: Address = Address(port=SIDECAR_PORT)
    url: str | None = option(
        None,
        "Base URL of the command's API server, whose own page has latencies and refusals as its "
        "clients see them; none: do not read it. Default: from the command's own --host and "
        "--port, if it is vLLM's, or SGLang's with --enable-metrics.",
        "URL",
    )
    compat: str = option(NO_SETS, COMPAT_HELP, "SETS")
    gpu: GpuOptions = GpuOptions()
    recording: RecordingOptions = RecordingOptions()
    hint_after: float = option(
        HINT_SECONDS, "Log what to check if no observer has reported by then.", "DURATION", least=0
    )
    access: PageAccess = PageAccess()

    def __post_init__(self) -> None:
        parse_compat(self.compat)


_DEFAULT = RunOptions()


@with_options
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command and its arguments, after --."),
    ],
    options: RunOptions = _DEFAULT,
) -> None:
    """Run a vLLM or SGLang with the observer, and serve its metrics.

    Nothing is installed into the server's environment: the observer is on its PYTHONPATH for this
    one run. Signals are passed on, and the exit code is the command's own.

    Example: kvscope run -- vllm serve Qwen/Qwen3-0.6B
    """
    configure_logging()
    show_last_stacks()
    host, port = options.address.host, options.address.port
    front_end = _front_end(options.url, command)
    flight = flight_of(options.recording)
    protection = Protection(options.access, [host])
    with signals_held() as mask, ExitStack() as stack:
        from kvscope.run.folder import run_folder
        from kvscope_events.wire.endpoint import EndpointError

        try:
            folder = stack.enter_context(run_folder(port))
        except (EndpointError, OSError) as error:
            raise fail(
                f"cannot make a folder for this run: {error} (KVSCOPE_RUN_DIR sets where)"
            ) from None
        poller = stack.enter_context(polling(options.gpu))
        from kvscope.run.background_server import Beside

        sockets = f"ipc://{folder / 'sockets'}/*"
        try:
            page = Beside(
                *(kind_of(command), sockets, host, port, parse_compat(options.compat)),
                *(poller, options.hint_after),
                protection=protection,
                url=front_end,
                flight=flight,
            )
        except OSError as error:
            raise fail(
                f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or "
                "--host; the command was not started"
            ) from None
        with in_flight(flight, by_signal=False):  # signals are the command's
            code = _supervise(command, folder, mask, page, front_end)
    raise typer.Exit(code)


def _front_end(url: str | None, command: Sequence[str]) -> str | None:
    """Base URL of the command's API server; None: it has none. Raises typer.Exit(2)."""
    from kvscope_exporter.configuration.check_server import url_problem

    if url is None:
        known = api_server_of(command)
        return None if known is None or url_problem(known) else known
    if url == "none":
        return None
    problem = url_problem(url)
    if problem:
        raise fail(f"--url: {problem}: write http://HOST:PORT, or none")
    return url


def _supervise(
    command: Sequence[str], folder: Path, mask: set[int], page: "Beside", front_end: str | None
) -> int:
    from kvscope.run.plugin_folder import with_plugin
    from kvscope_events.observers.endpoints import DIRECTORY_VARIABLE

    early = signal_waiting()
    if early is not None:  # from the terminal: the child would never get it
        return early
    environment = with_plugin(dict(os.environ), folder / "plugin")
    environment[DIRECTORY_VARIABLE] = str(folder / "sockets")
    try:
        child = Child(command, environment, mask)
    except CommandError as error:
        typer.echo(f"kvscope: {error}", err=True)
        return error.code
    logger.info("started %s (pid %d)", shlex.join(command), child.pid)
    logger.info("metrics: %s/metrics; events: %s", page.url, page.endpoint)
    if front_end is None:
        logger.info("latencies come from the scheduler; --url reads them from the API server")
    else:
        logger.info("latencies are those of the API server: %s/metrics", front_end)
    code = child.wait(TICK_SECONDS, page.look)
    logger.info("the command has ended with exit code %d", code)
    return code
