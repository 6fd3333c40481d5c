"""The server or recording that a command asks: as it was named, or the server of this machine."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvscope.answer_document import AnswerError, Connection, fetch_document
from kvscope.options.listen import SIDECAR_PORT, Address
from kvscope.output import fail
from kvscope_exporter.paths import LIVE

if TYPE_CHECKING:
    from kvscope_exporter.recorder.reader import RecordingFile

HERE = tuple(f"http://127.0.0.1:{port}" for port in (SIDECAR_PORT, Address().port))
"""Addresses of this machine: of `kvscope run` and `sidecar`, then of `engine serve` and `demo`."""
SERVER = "a URL, HOST:PORT or HOST, whose port is then {port}"
SERVER_HELP = (
    "A kvscope server (run, sidecar, demo or engine serve): "
    f"{SERVER.format(port=SIDECAR_PORT)}. Default: {HERE[0]}, else {HERE[1]}."
)
"""The help of an argument that may be left out."""
SOURCE_HELP = f"{SERVER_HELP} Or a recording, *.kvsr: a file of that name comes first."

_LOOK_SECONDS = 2.0
_SCHEMES = ("http", "https")
_RECORDING = ".kvsr"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[\w.-]*\w)?)"
_WITH_PORT = re.compile(rf"{_HOST}?:\d{{1,5}}(?:/.*)?")
_ALONE = re.compile(f"{_HOST}/?")


def server_named(text: str, port: int = SIDECAR_PORT) -> str:
    """The base URL of a server that was named. port: for a host alone. Raises typer.Exit(2)."""
    if "://" in text:
        if text.partition("://")[0].lower() not in _SCHEMES:
            raise fail(f"{text}: not a server: write http://HOST:PORT")
        return text
    if _WITH_PORT.fullmatch(text):
        return f"http://127.0.0.1{text}" if text.startswith(":") else f"http://{text}"
    if text.endswith(_RECORDING) or not _ALONE.fullmatch(text):
        raise fail(f"{text}: not a server: write http://HOST:PORT")
    return f"http://{text.rstrip('/')}:{port}"


def source_named(text: str) -> str | Path:
    """The base URL of a server, or the path of a recording.

    A file that exists comes first. Then what can be no host or ends like a recording is a file that
    is missing, and the rest is a server. Raises typer.Exit(2).
    """
    if "://" not in text:
        path = Path(text)
        if path.exists() or (
            not _WITH_PORT.fullmatch(text)
            and (text.endswith(_RECORDING) or not _ALONE.fullmatch(text))
        ):
            return path
        if ":" not in text:
            typer.echo(f"kvscope: no file {text} is here: asking {server_named(text)}", err=True)
    return server_named(text)


def check_target(recording: "RecordingFile", target: str, option: str = "--target") -> None:
    """A recording has one server. Raises typer.Exit(2) if a different one was named."""
    if target not in ("", recording.opened.server):
        raise fail(
            f"{option} {target}: {recording.path} is a recording of {recording.opened.server} alone"
        )


def server_asked(given: str | None, command: str) -> str:
    """The base URL of the server that was named, or of the one that is found.

    command: as it was called, for the error. Raises typer.Exit(2).
    """
    return server_named(given) if given is not None else server_found(command)


def server_found(command: str) -> str:
    """The base URL of the kvscope of this machine. Raises typer.Exit(2)."""
    problems = []
    for url in HERE:
        problem = _problem(url)
        if problem is None:
            typer.echo(f"kvscope: asking {url}", err=True)
            return url
        problems.append(f"{url} ({problem})")
    raise fail(
        f"no kvscope was found at {' or '.join(problems)}: start one, as in `kvscope run -- vllm "
        f"serve MODEL`, or name the server, as in `kvscope {command} http://HOST:PORT`"
    )


def _problem(url: str) -> str | None:
    """The reason why this is not the kvscope that is looked for; None: it is one."""
    try:
        page = fetch_document(
            *(url, LIVE.path, Connection(seconds=_LOOK_SECONDS)),
            accept="text/html",
        )
    except AnswerError as error:
        return "another server" if error.status else error.reason
    return None if b"kvscope" in page.body else "another server"
