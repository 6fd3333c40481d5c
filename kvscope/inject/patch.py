"""Strategic-merge patches: what an observed manifest has more than the manifest itself.

Lists of Kubernetes' own kinds are merged by a key of their elements, so a patch has what is added.
Those of other kinds are replaced where their schema is not known: such a list is in it as a whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from kvscope.inject.document import RefusedError

_MERGED_BY = {
    **dict.fromkeys(("initContainers", "containers", "volumes", "env"), "name"),
    "volumeMounts": "mountPath",
}
_OF_KUBERNETES = ("v1", "apps/v1", "batch/v1")
_WHOLE = """\
# Lists are in it as a whole, since kustomize knows no keys of a {}'s lists.
# Write it again when the manifest has changed.
"""


def patches(before: str, after: str) -> str:
    """One document for each object that differs. Raises RefusedError for an object that no patch
    can name, and for a Compose file."""
    parts = []
    for old, new in zip(_objects(before), _objects(after), strict=True):
        if old == new:
            continue
        kind, metadata = old.get("kind"), old.get("metadata") or {}
        if not kind:
            raise RefusedError(
                "--patch is for Kubernetes: a Compose file takes a second file itself"
            )
        if not metadata.get("name"):
            raise RefusedError(f"{kind}: without metadata.name, no patch can name it")
        is_merged = old.get("apiVersion") in _OF_KUBERNETES
        added = _difference(old, new, is_merged=is_merged)
        named = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
        document = {
            "apiVersion": old.get("apiVersion"),
            "kind": kind,
            **added,
            "metadata": {**named, **added.get("metadata", {})},
        }
        text = yaml.safe_dump(document, sort_keys=False, width=1_000)
        parts.append(text if is_merged else _WHOLE.format(kind) + text)
    return "---\n".join(parts)


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    tabs = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    for document in yaml.safe_load_all(text.replace("\t", " ") if tabs else text):
        yield from _items(document)


def _items(document: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _items(item)
    else:
        yield document


def _difference(old: Any, new: Any, *, is_merged: bool) -> Any:
    """The part of the new value that a merge with the old one makes it; nothing is ever removed."""
    found: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = _difference(before, value, is_merged=is_merged)
        elif is_merged and isinstance(value, list) and key in _MERGED_BY:
            found[key] = list(_elements(before or [], value, _MERGED_BY[key]))
        else:
            found[key] = value
    return found


def _elements(old: Any, new: Any, key: str) -> Iterator[Any]:
    known = {element[key]: element for element in old}
    for element in new:
        before = known.get(element[key])
        if before is None:
            yield element
        elif before != element:
            yield {key: element[key], **_difference(before, element, is_merged=True)}
