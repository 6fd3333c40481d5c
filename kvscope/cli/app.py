"""All commands, and the variables that set the options of those that serve."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from kvscope.cli.advise import advise
from kvscope.cli.alerts import alerts
from kvscope.cli.demo import demo
from kvscope.cli.diff import diff
from kvscope.cli.doctor import doctor
from kvscope.cli.export import export
from kvscope.cli.fleet import fleet
from kvscope.cli.gpu import gpu
from kvscope.cli.inject import inject
from kvscope.cli.load import load
from kvscope.cli.metrics import metrics
from kvscope.cli.observer import observer
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
from kvscope.cli.webhook import webhook
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

    Each has the command's name in it, so that no variable of one command changes another.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settable = [option for option in self.params if isinstance(option, TyperOption)]
        for option in self._settable:
            option.envvar = f"{PREFIX}{self.name}_{_name_of(option)}".upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self._settable:
            name = f"{PREFIX}{_name_of(option)}".upper()
            if os.environ.get(name) and not ctx.resilient_parsing:
                typer.echo(
                    f"kvscope: {name} is not read: the variable of kvscope {self.name} is "
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


app = typer.Typer(
    name="kvscope",
    help="Observability for paged-KV LLM inference servers. Options of commands that serve (run, "
    "serve, sidecar, fleet, demo, webhook) can be set by environment variables as well: --port of "
    "sidecar by KVSCOPE_SIDECAR_PORT. A flag wins.",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the boxes of the rich help cut names off on 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Options of the command that is run are its own, even without -- before it.
app.command(cls=Daemon, context_settings={"allow_interspersed_args": False})(run)
_DAEMONS = (serve, sidecar, fleet, demo, webhook)
_COMMANDS = (
    *(observer, inject, webhook, serve, sidecar, fleet, demo, load, plan, top),
    *(whatif, record, replay, export, why, diff, alerts),
    *(advise, tenants, retire, gpu, doctor, stacks, metrics),
)
for command in _COMMANDS:
    app.command(cls=Daemon if command in _DAEMONS else TyperCommand)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvscope {version('kvscope')}")
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
