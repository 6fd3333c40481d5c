"""The documents of a file, each changed as text, or passed on as it is."""

import re
from collections.abc import Iterator

from kvscope.inject import compose_file, kubernetes
from kvscope.inject.edit import Editor
from kvscope.inject.report import Report
from kvscope.inject.tree import (
    DocumentError,
    Node,
    compose,
    entry,
    is_list,
    is_mapping,
    plain,
    scalars,
)
from kvscope.inject.workloads import pods_of

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:[.$]|(?:if|else|end|range|with|include|template|define|block|toYaml|tpl)\b)"
)
"""Helm's and Go's; not Jinja's, which a chat template in an argument may be."""
_MAY_HAVE_TEMPLATES = ("LLMInferenceService", "LLMInferenceServiceConfig")
"""Kinds in whose texts KServe's controller fills in Go's templates."""
_REMEDY = "render it first (helm template CHART), and inject the result"


class RefusedError(Exception):
    """A file that cannot be read: nothing is written."""


def changed(text: str, wish: kubernetes.Wish, report: Report, *, is_removal: bool) -> str:
    """The whole text with its servers observed, or no longer. Raises RefusedError."""
    parts, line = [], 1
    for document in _documents(text):
        parts.append(_document(document, line, wish, report, is_removal))
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


def _document(text: str, line: int, wish: kubernetes.Wish, report: Report, is_removal: bool) -> str:
    try:
        root = compose(text)
    except DocumentError as error:
        if _TEMPLATE.search(text):
            raise RefusedError(f"line {line}: it is a template: {_REMEDY}") from None
        raise RefusedError(f"line {line + error.line}: {error}") from None
    if root is None or not is_mapping(root):
        return text
    edit = Editor(text, root)
    for item in _objects(root):
        kind = _text(item, "kind")
        if not kind and entry(item, "services") is not None:
            _refuse_template(item, line)
            if is_removal:
                compose_file.remove(item, edit, report)
            else:
                compose_file.inject(item, edit, wish, report)
        elif kind:
            _object(item, kind, line, edit, wish, report, is_removal)
    return edit.result()


def _object(
    item: Node,
    kind: str,
    line: int,
    edit: Editor,
    wish: kubernetes.Wish,
    report: Report,
    is_removal: bool,
) -> None:
    metadata = plain(item).get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    name = f"{kind}/{names.get('name') or names.get('generateName') or '?'}"
    if any(True for _ in pods_of(item, kind)):
        _refuse_template(item, line, may_be_in_texts=kind in _MAY_HAVE_TEMPLATES)
    if is_removal:
        kubernetes.remove(item, kind, name, edit, report)
    else:
        kubernetes.inject(item, kind, name, edit, wish, report)


def _objects(root: Node) -> Iterator[Node]:
    """The object of a document, or those of a list."""
    items = entry(root, "items")
    if _text(root, "kind").endswith("List") and items is not None and is_list(items[1]):
        for item in items[1].value:
            if is_mapping(item):
                yield from _objects(item)
        return
    yield root


def _text(mapping: Node, key: str) -> str:
    found = entry(mapping, key)
    return str(plain(found[1]) or "") if found else ""


def _refuse_template(item: Node, line: int, *, may_be_in_texts: bool = False) -> None:
    """Raises RefusedError for one that is valid YAML nevertheless."""
    for node in scalars(item):
        # {{ .Values.x }} is a mapping whose key is a mapping.
        if is_mapping(node) or (not may_be_in_texts and _TEMPLATE.search(node.value)):
            where = line + node.start_mark.line
            raise RefusedError(f"line {where}: it is a template: {_REMEDY}")
