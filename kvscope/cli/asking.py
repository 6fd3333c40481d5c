"""Options of the commands that ask other servers."""

from pathlib import Path
from typing import Annotated

import typer

TargetName = Annotated[
    str, typer.Option(metavar="NAME", help="Which of a sidecar's servers, if it has several.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with bearer tokens, the first of which is sent; kvscope's option of the same "
        "name takes it.",
    ),
]
Authorities = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificate authorities to trust for an https URL, in PEM."),
]
