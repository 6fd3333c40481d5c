"""All commands, and the variables that set the options of those that serve."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from kvscope.cli.advise import advise
from kvscope.cli.alert_rules import generate, suggest
from kvscope.cli.alerts import backtest
from kvscope.cli.demo import demo
from kvscope.cli.diff import diff
from kvscope.cli.doctor import doctor
from kvscope.cli.export import export
from kvscope.cli.fleet import fleet
from kvscope.cli.gpu import gpu_release, gpu_resume
from kvscope.cli.inject import inject
from kvscope.cli.load import load
from kvscope.cli.metrics import metrics
from kvscope.cli.observer import check, install, off, on
from kvscope.cli.plan import plan
from kvscope.cli.record import record
from kvscope.cli.replay import replay
from kvscope.cli.retire import retire
from kvscope.cli.run import run
from kvscope.cli.serve import serve
from kvscope.cli.sidecar import sidecar
from kvscope.cli.stacks import stacks
from kvscope.cli.tenants import tenants
from kvscope.cli.top import top
from kvscope.cli.whatif import whatif
from kvscope.cli.why import why
from kvscope.output import fail, output_errors

PREFIX = "KVSCOPE_"


_UsageError: Any = typer.BadParameter.__base__  # which typer does not export


class _Group(TyperGroup):
    """Refuses a line that cannot be parsed in one line, as everything else is refused."""

    def make_context(self, info_name: Any, args: Any, *rest: Any, **more: Any) -> Any:
        if not args:  # prints the help
            return super().make_context(info_name, args, *rest, **more)
        with _one_line():
            return super().make_context(info_name, args, *rest, **more)

    def invoke(self, ctx: Any) -> Any:
        with _one_line():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ctx.parent is None and args[0] in _MOVED:
            raise fail(f"`kvscope {args[0]}` is now `kvscope {_MOVED[args[0]]}`")
        return super().resolve_command(ctx, args)


@contextmanager
def _one_line() -> Iterator[None]:
    """Raises typer.Exit(2) instead of an error of the command line."""
    try:
        yield
    except _UsageError as error:
        path = "kvscope" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().split())
        raise fail(f"{message} (see {path} --help)") from None


class Daemon(TyperCommand):
    """A command that serves until it is ended: variables set its options, and flags win over them.

    Each has the command's words in it, so no variable of one command changes another.
    """

    path = ""
    """The words of the command behind `kvscope`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settable = [option for option in self.params if isinstance(option, TyperOption)]
        for option in self._settable:
            option.envvar = f"{PREFIX}{self.path}_{_name_of(option)}".replace(" ", "_").upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self._settable:
            name = f"{PREFIX}{_name_of(option)}".upper()
            if os.environ.get(name) and not ctx.resilient_parsing:
                typer.echo(
                    f"kvscope: {name} is not read: the variable of kvscope {self.path} is "
                    f"{option.envvar}",
                    err=True,
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The help explains the rule once instead of naming a variable with each option."""
        for option in self._settable:
            option.show_envvar = False
        super().format_options(ctx, formatter)
        for option in self._settable:
            option.show_envvar = True

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        first = self._settable[0]
        formatter.write_paragraph()
        formatter.write_text(
            f"Each option can be set by a variable: {first.opts[0]} by {first.envvar}."
        )


def _name_of(option: TyperOption) -> str:
    """max_num_seqs for --max-num-seqs: the first long one of an option's flags."""
    flag = next(flag for flag in option.opts if flag.startswith("--"))
    return flag.removeprefix("--").replace("-", "_")


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
    "alerts": (
        "Try the shipped alerts, and generate rules.",
        {"backtest": backtest, "generate": generate, "suggest": suggest},
    ),
    "engine": ("Serve a model with kvscope's own engine.", {"serve": serve}),
    "admin": (
        "Forget a server, and release or resume GPUs.",
        {"forget": retire, "gpu-release": gpu_release, "gpu-resume": gpu_resume},
    ),
    "docs": ("Print the reference.", {"metrics": metrics}),
}
_HIDDEN = ("docs",)
_MOVED = {
    "record": "rec save",
    "replay": "rec play",
    "export": "rec export",
    "serve": "engine serve",
    "stacks": "observer stacks",
    "retire": "admin forget",
    "gpu": "admin gpu-release",
    "metrics": "docs metrics",
}
"""The present words of commands that had other names."""


def _typer(text: str, name: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=text,
        cls=_Group,
        no_args_is_help=True,
        add_completion=name is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # the boxes of the rich help cut names off on 80 columns
        context_settings=_SETTINGS,
    )


def _add(to: typer.Typer, path: str, command: Callable[..., None]) -> None:
    kind = type("Command", (Daemon,), {"path": path}) if command in _DAEMONS else TyperCommand
    # Options of the command that is run are its own, even without -- before it.
    settings = {"allow_interspersed_args": False} if command in (run, generate) else {}
    if command is generate:
        settings["ignore_unknown_options"] = True
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


@app.command("version")
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
