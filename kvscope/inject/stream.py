"""The documents of a file, each changed as text, or passed on as it is."""

import re
from collections.abc import Iterator

from kvscope.inject.document import observe, without
from kvscope.inject.kubernetes import Wish
from kvscope.inject.report import Report

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


def changed(text: str, wish: Wish, report: Report, *, is_removal: bool) -> str:
    """The whole text with its servers observed, or no longer. Raises RefusedError."""
    parts, line = [], 1
    for document in _documents(text):
        if is_removal:
            parts.append(without(document, line, report))
        else:
            parts.append(observe(document, line, wish, report))
        line += document.count("\n")
    return "".join(parts)


def _documents(text: str) -> Iterator[str]:
    """The text in parts that begin with their `---`; directives stay with what follows."""
    begin = 0
    for match in _SEPARATOR.finditer(text):
        before = text[begin : match.start()]
        if before and not all(line[:1] in "%#" for line in before.splitlines() if line.strip()):
            yield before
            begin = match.start()
    yield text[begin:]
