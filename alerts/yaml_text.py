"""YAML of plain data, the same at every run: long texts folded, queries as blocks."""

import json
import re
import textwrap

_PLAIN = re.compile(r"[A-Za-z_/][\w ./$-]*(?::[\w./-]+)*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_WIDTH = 96


def to_yaml(value: object, comment: str = "") -> str:
    """A document. Mappings, lists, strings, numbers."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + ("\n" if head else "") + "\n".join(_block(value, 0)) + "\n"


def _block(value: object, indent: int) -> list[str]:
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _entry(f"{pad}{_scalar(str(key))}:", item, indent + 2)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list) and item:
                first, *rest = _block(item, indent + 2)
                lines += [f"{pad}- {first.lstrip()}", *rest]
            else:
                lines += _entry(f"{pad}-", item, indent + 2)
    else:
        raise TypeError(f"no block of {type(value).__name__}")
    return lines


def _entry(head: str, item: object, indent: int) -> list[str]:
    if isinstance(item, dict | list):
        if not item:
            return [f"{head} {'{}' if isinstance(item, dict) else '[]'}"]
        return [head, *_block(item, indent)]
    pad = " " * indent
    if isinstance(item, str) and "\n" in item:
        keep = "|" if item.endswith("\n") else "|-"
        body = item.removesuffix("\n").split("\n")
        return [f"{head} {keep}", *(pad + line if line else "" for line in body)]
    if isinstance(item, str) and " " in item and len(head) + 1 + len(item) > _WIDTH:
        body = textwrap.wrap(item, _WIDTH - indent, break_long_words=False, break_on_hyphens=False)
        return [f"{head} >-", *(pad + line for line in body)]
    return [f"{head} {_scalar(item)}"]


def _scalar(item: object) -> str:
    if isinstance(item, str):
        plain = _PLAIN.fullmatch(item) and item.lower() not in _WORDS and item == item.strip()
        return item if plain else json.dumps(item, ensure_ascii=False)
    return json.dumps(item)
