"""The command's tree."""

from importlib.metadata import version
from typing import Annotated

import typer

from exporter.cli.demo import demo
from exporter.cli.load import load
from exporter.cli.metrics import metrics
from exporter.cli.serve import serve

app = typer.Typer(
    name="kvscope",
    help="Observability for paged-KV LLM inference servers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, demo, load, metrics):
    app.command()(command)


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
    app()
