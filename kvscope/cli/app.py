"""All commands, and the variables that set the options of those that serve."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kvscope.cli.admin import forget, gpu_release, gpu_resume
from kvscope.cli.advise import advise
from kvscope.cli.alerts import backtest
from kvscope.cli.command import Command, Daemon, Group
from kvscope.cli.demo import demo
from kvscope.cli.diff import diff
from kvscope.cli.doctor import doctor
from kvscope.cli.export import export
from kvscope.cli.fleet import fleet
from kvscope.cli.inject import inject
from kvscope.cli.load import load
from kvscope.cli.metrics import metrics
from kvscope.cli.observer import check, install, off, on
from kvscope.cli.plan import plan
from kvscope.cli.record import record
from kvscope.cli.replay import replay
from kvscope.cli.run import run
from kvscope.cli.serve import serve
from kvscope.cli.sidecar import sidecar
from kvscope.cli.stacks import stacks
from kvscope.cli.tenants import tenants
from kvscope.cli.top import top
from kvscope.cli.whatif import whatif
from kvscope.cli.why import why
from kvscope.output import output_errors

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
_DAEMONS = (run, sidecar, fleet, demo, serve)
_DAILY = (run, sidecar, fleet, inject, why, top, advise, tenants, diff, plan, whatif, load, demo)
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "rec": (
        "Save, play and export recordings.",
        {"save": record, "play": replay, "export": export},
    ),
    "observer": (
        "Install, switch and question the observer of a vLLM or SGLang.",
        {"install": install, "on": on, "off": off, "check": check, "stacks": stacks},
    ),
    "alerts": ("Try the shipped alerts.", {"backtest": backtest}),
    "engine": ("Serve a model with kvscope's own engine.", {"serve": serve}),
    "admin": (
        "Forget a server, and release or resume GPUs.",
        {"forget": forget, "gpu-release": gpu_release, "gpu-resume": gpu_resume},
    ),
    "docs": ("Print the reference.", {"metrics": metrics}),
}
_HIDDEN = ("docs",)


def _typer(text: str, name: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=text,
        cls=Group,
        no_args_is_help=True,
        add_completion=name is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # the boxes of the rich help cut names off on 80 columns
        context_settings=_SETTINGS,
    )


def _add(to: typer.Typer, path: str, command: Callable[..., None]) -> None:
    kind = type("Daemon", (Daemon,), {"path": path}) if command in _DAEMONS else Command
    # Options of the command that is run are its own, even without -- before it.
    settings = {"allow_interspersed_args": False} if command is run else {}
    to.command(path.split()[-1], cls=kind, context_settings=settings)(command)


app = _typer(
    "Observability for paged-KV LLM inference servers. Options of commands that serve (run, "
    "sidecar, fleet, demo, engine serve) can be set by environment variables as well: --port of "
    "sidecar by KVSCOPE_SIDECAR_PORT. A flag wins.",
    "kvscope",
)
for command in (*_DAILY, doctor):
    _add(app, command.__name__, command)
for name, (text, commands) in _GROUPS.items():
    group = _typer(text)
    for own, command in commands.items():
        _add(group, f"{name} {own}", command)
    app.add_typer(group, name=name, hidden=name in _HIDDEN)


def every_command() -> dict[str, TyperCommand]:
    """Each by its words behind `kvscope`, as in "rec save"."""
    found: dict[str, TyperCommand] = {}
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            commands: Any = command.commands
            found |= {f"{name} {own}": each for own, each in commands.items()}
        else:
            found[name] = command
    return found


@app.command("version", cls=Command)
def _version() -> None:
    """Print the version."""
    typer.echo(f"kvscope {version('kvscope')}")


def _print_version(wanted: bool) -> None:
    if wanted:
        _version()
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the `kvscope` script."""
    with output_errors():
        app()
