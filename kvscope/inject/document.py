"""One document with its servers observed, whatever of ours it had before, or no longer.

Servers that are observed already are taken for new: what was added comes off, and is added as it
is asked for now. So the result is that of the document without us, or the document as it was.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kvscope.inject import compose_file, kubernetes
from kvscope.inject.edit import Editor
from kvscope.inject.kubernetes import Wish
from kvscope.inject.report import Place, Report, Turn
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
from kvscope.inject.workloads import chosen_pods, pods_of

_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:[.$]|(?:if|else|end|range|with|include|template|define|block|toYaml|tpl)\b)"
)
"""Helm's and Go's; not Jinja's, which a chat template in an argument may be."""
_MAY_HAVE_TEMPLATES = re.compile("LLMInferenceService(Config)?|(Cluster)?ServingRuntime")
"""Kinds in whose texts KServe's or OME's controller fills in Go's templates."""
_REMEDY = "render it first (helm template CHART), and inject the result"
_BY_DEFAULT = (
    "defaultMode",
    "imagePullPolicy",
    "protocol",
    "terminationMessagePath",
    "terminationMessagePolicy",
)
"""Keys that an API server adds to containers and volumes of ours."""
_SAME = "already observed in this way"

Parts = dict[Place, Mapping[str, Any]]


class RefusedError(Exception):
    """A file that cannot be read: nothing is written."""


def observe(text: str, line: int, wish: Wish, report: Report) -> str:
    """The document, whose first line has this number, with its servers observed. Raises
    RefusedError."""
    root = _root(text, line)
    if root is None:
        return text
    before, kept = _before(root, wish)
    if not before:
        return _observed(text, root, wish, report, {}, {})
    while True:
        again = before.keys() - kept.keys()
        bare, trial = _without(text, root, again)
        lost = trial.reasons
        if not lost:
            bare_root = compose(bare)
            trial = Report()
            result = _observed(bare, bare_root, wish, trial, dict.fromkeys(again, ""), kept)
            lost = {
                place: trial.reasons.get(place, _unrecognised(wish))
                for place in again - trial.places
            }
        if not lost:
            break
        kept |= lost
    after, _ = _before(compose(result), wish)
    words = {place: _word(before[place], after[place]) for place in again}
    result = _observed(bare, bare_root, wish, report, words, kept)
    is_same = trial.places == again and set(words.values()) <= {_SAME}
    return text if is_same else result


def without(text: str, line: int, report: Report) -> str:
    """The document without anything of ours. Raises RefusedError."""
    root = _root(text, line)
    if root is None:
        return text
    result, found = _without(text, root, None)
    report.add(found)
    return result


def _root(text: str, line: int) -> Node | None:
    """The root if it may have servers. Raises RefusedError."""
    try:
        root = compose(text)
    except DocumentError as error:
        if _TEMPLATE.search(text):
            raise RefusedError(f"line {line}: it is a template: {_REMEDY}") from None
        raise RefusedError(f"line {line + error.line}: {error}") from None
    if root is None or not is_mapping(root):
        return None
    for item, kind in _objects(root):
        if not kind or any(True for _ in pods_of(item, kind)):
            _refuse_template(item, line, may_be_in_texts=bool(_MAY_HAVE_TEMPLATES.fullmatch(kind)))
    return root


def _objects(root: Node) -> Iterator[tuple[Node, str]]:
    """The objects of a document or a list, and their kinds; a Compose file has none."""
    kind = _text(root, "kind")
    key = {"Template": "objects"}.get(kind, "items" if kind.endswith("List") else "")
    items = entry(root, key)
    if items is not None and is_list(items[1]):
        for item in items[1].value:
            if is_mapping(item):
                yield from _objects(item)
    elif kind or entry(root, "services") is not None:
        yield root, kind


def _name(item: Node, kind: str) -> str:
    metadata = plain(item).get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return f"{kind}/{names.get('name') or names.get('generateName') or '?'}"


def _before(root: Node, wish: Wish) -> tuple[Parts, dict[Place, str]]:
    """The servers that are observed already, with our parts, and those of them that have no
    container of the name that is asked for."""
    found: Parts = {}
    others: dict[Place, str] = {}
    for number, (item, kind) in enumerate(_objects(root)):
        turn = Turn(number)
        of_object: Mapping[int | str, tuple[list[str], Mapping[str, Any]]]
        if kind:
            of_object = dict(kubernetes.observed(item, kind).items())
        else:
            of_object = {name: ([name], own) for name, own in compose_file.observed(item).items()}
        chosen = chosen_pods(item, kind, wish.path) if kind else of_object
        for inner, (names, parts) in of_object.items():
            found[turn.place(inner)] = parts
            if inner not in chosen or wish.container not in (None, *names):
                others[turn.place(inner)] = ""
    return found, others


def _observed(
    text: str,
    root: Node,
    wish: Wish,
    report: Report,
    words: Mapping[Place, str],
    kept: Mapping[Place, str],
) -> str:
    edit = Editor(text, root)
    for number, (item, kind) in enumerate(_objects(root)):
        turn = Turn(number, words, kept)
        if kind:
            kubernetes.inject(item, kind, _name(item, kind), edit, wish, report, turn)
        else:
            compose_file.inject(item, edit, wish, report, turn)
    return edit.result()


def _without(text: str, root: Node, only: Collection[Place] | None) -> tuple[str, Report]:
    edit, report = Editor(text, root), Report()
    for number, (item, kind) in enumerate(_objects(root)):
        turn = Turn(number)
        if kind:
            kubernetes.remove(item, kind, _name(item, kind), edit, report, turn, only)
        else:
            compose_file.remove(item, edit, report, turn, only)
    return edit.result(), report


def _unrecognised(wish: Wish) -> str:
    if wish.container is not None:
        return f"container {wish.container} starts no server any more"
    return "its container is not recognised: name it again with --container"


def _word(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The word for a server that was observed: whether its parts of ours differ, and in what."""
    differing: dict[str, None] = {}
    for name in [*before, *after]:
        old, new = (_plain(parts.get(name)) for parts in (before, after))
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            names = [key for key in [*old, *new] if old.get(key) != new.get(key)]
            differing |= dict.fromkeys(names)
        else:
            differing[name] = None
    return f"updated ({', '.join(differing)})" if differing else _SAME


def _plain(value: Any) -> Any:
    """The same value for what a cluster does not distinguish."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if key not in _BY_DEFAULT}
    if isinstance(value, list):  # in another order if someone else has added an element
        return sorted(map(_plain, value), key=repr)
    return value


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
