"""Options of the commands that ask other servers."""

from pathlib import Path
from typing import Annotated

import typer

TargetName = Annotated[
    str, typer.Option(metavar="NAME", help="Server of a sidecar, if it watches several.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File of bearer tokens; the first is sent. Same format as the server's "
        "--metrics-key-file.",
    ),
]
Authorities = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificate authorities to trust for an https URL, in PEM."),
]
