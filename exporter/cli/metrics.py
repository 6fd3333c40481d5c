"""`kvscope metrics`: the catalogue as a page."""

import typer

from exporter.document import markdown


def metrics() -> None:
    """Print every metric that kvscope exports, with type, unit, labels and meaning, as Markdown."""
    typer.echo(markdown(), nl=False)
