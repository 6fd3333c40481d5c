"""Deterministic YAML of plain data: long texts are folded, queries are literal blocks."""

import re
from typing import Any

import yaml

_WIDTH = 100
_HARMLESS = re.compile(r"[\w ./$%(),;+-]*")


def to_yaml(value: object, comment: str = "") -> str:
    """A document of mappings, lists, strings and numbers, in the given order."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return f"{head}\n{body}" if head else body


class _Dumper(yaml.SafeDumper):
    """A dumper without aliases that indents lists below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    if " " in text and len(text) > _WIDTH - 20:
        prose = text.endswith(".")
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=">" if prose else "|")
    style = None if _HARMLESS.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
