"""`kvscope docs metrics`: the catalogue as a page."""

from typing import Annotated

import typer


def metrics(
    servers: Annotated[
        bool,
        typer.Option(
            "--servers", help="Print which metrics are known for which kind of server instead."
        ),
    ] = False,
) -> None:
    """Print all metrics of kvscope as a page in Markdown."""
    from kvscope.reference.metrics import metrics_page
    from kvscope.reference.servers import servers_page

    typer.echo(servers_page() if servers else metrics_page(), nl=False)
