"""The command on a text, without a process."""

from dataclasses import dataclass
from typing import Any

import yaml
from typer.testing import CliRunner

from kvscope.cli.app import app


@dataclass(frozen=True)
class Outcome:
    text: str
    said: str
    code: int


def run(text: str | bytes, *options: str) -> Outcome:
    content = text if isinstance(text, bytes) else text.encode()
    result = CliRunner().invoke(app, ["inject", "-f", "-", *options], input=content)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Outcome(result.stdout_bytes.decode(), result.stderr, result.exit_code)


def loaded(text: str) -> list[Any]:
    """The documents of a text that are not empty, a List's items one by one."""
    text = text.replace("\t", " ")
    found: list[Any] = []
    for document in yaml.safe_load_all(text):
        found += (document or {}).get("items", [document] if document else [])
    return found
