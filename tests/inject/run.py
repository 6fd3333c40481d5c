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


IMAGE = "registry.example.com/kvscope-exporter:1"


def run(text: str | bytes, *options: str, image: str | None = IMAGE) -> Outcome:
    content = text if isinstance(text, bytes) else text.encode()
    named = [] if image is None else [f"--exporter-image={image}"]
    result = CliRunner().invoke(app, ["inject", "-f", "-", *named, *options], input=content)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Outcome(result.stdout_bytes.decode(), result.stderr, result.exit_code)


def loaded(text: str) -> list[Any]:
    """The documents of a text that are not empty, a List's items one by one."""
    text = text.replace("\t", " ")
    found: list[Any] = []
    for document in yaml.safe_load_all(text):
        found += (document or {}).get("items", [document] if document else [])
    return found
