"""A YAML or JSON document as nodes that know their place in the text.

Only syntax: an alias is a node of its own, so that each node stands in the text once.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Node = Any
"""PyYAML has no types of its own."""


class LeftAloneError(Exception):
    """The reason why a part of a document cannot be changed."""


class DocumentError(Exception):
    """A document that cannot be read."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        """Counted from 0."""


class Alias(yaml.ScalarNode):  # type: ignore[misc]
    """`*NAME`, and the node that it stands for."""

    def __init__(self, event: Any, target: Node) -> None:
        super().__init__("alias", event.anchor, event.start_mark, event.end_mark)
        self.target = target


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_node(self, parent: Node, index: Node) -> Node:
        if not self.check_event(yaml.AliasEvent):
            return super().compose_node(parent, index)
        event = self.get_event()
        if event.anchor not in self.anchors:
            problem = f"undefined alias *{event.anchor}"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return Alias(event, self.anchors[event.anchor])


def compose(text: str) -> Node | None:
    """The root of a document; None: it is empty. Raises DocumentError."""
    # Tabs indent what no YAML parser minds only between the brackets of JSON.
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        text = text.replace("\t", " ")
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or str(error)
        if "'\\t'" in problem:
            problem = "a tab where YAML takes only spaces"
        raise DocumentError(mark.line if mark else 0, problem) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise DocumentError(0, str(error).partition("\n")[0]) from None


def is_mapping(node: Node) -> bool:
    return isinstance(node, yaml.MappingNode)


def is_list(node: Node) -> bool:
    return isinstance(node, yaml.SequenceNode)


def entry(holder: Node, key: str) -> tuple[Node, Node] | None:
    """Key and value as they are written; None: the mapping has none of its own."""
    for name, value in holder.value if is_mapping(holder) else ():
        if isinstance(name, yaml.ScalarNode) and name.value == key:
            return name, value
    return None


def child(holder: Node, key: str) -> Node | None:
    """The value, which may be changed where it stands; None: there is no such key.

    Raises LeftAloneError if the value is written elsewhere.
    """
    found = entry(holder, key)
    if found is not None:
        if isinstance(found[1], Alias):
            raise LeftAloneError(f"its `{key}` is the alias *{found[1].value}: write it out")
        return found[1]
    merged = entry(holder, "<<")
    if merged is not None and key in plain(holder):
        raise LeftAloneError(f"its `{key}` comes from a merge (<<): write it out")
    return None


def at(root: Node, path: str) -> Iterator[Node]:
    """The nodes at a path of keys, where `*` is every element of a list or a mapping."""
    if not path:
        yield root
        return
    first, _, rest = path.partition("/")
    if first == "*" and is_list(root):
        inner = root.value
    else:
        pairs = root.value if is_mapping(root) else ()
        inner = [value for key, value in pairs if first in ("*", key.value)]
    for one in inner:
        yield from at(target(one), rest)


def target(node: Node) -> Node:
    """The node itself, or that for which an alias stands."""
    return node.target if isinstance(node, Alias) else node


def plain(node: Node) -> Any:
    """The node as mappings, lists and texts, with aliases and merges resolved: for reading."""
    return _plain(node, {})


def _plain(node: Node, known: dict[int, Any]) -> Any:
    if isinstance(node, Alias):
        node = node.target
    if id(node) in known:  # once each, or nested aliases would multiply
        return known[id(node)]
    if is_list(node):
        known[id(node)] = elements = []
        elements += [_plain(element, known) for element in node.value]
        return elements
    if is_mapping(node):
        known[id(node)] = content_of = {}
        merged: dict[str, Any] = {}
        for name, value in node.value:
            key = name.value if isinstance(name, yaml.ScalarNode) else ""
            content = _plain(value, known)
            if key != "<<":
                content_of[key] = content
                continue
            for source in content if isinstance(content, list) else [content]:
                if isinstance(source, dict):
                    merged = {**source, **merged}
        content_of.update({k: value for k, value in merged.items() if k not in content_of})
        return content_of
    return None if is_null(node) else node.value


def mapping(value: Any) -> Mapping[str, Any]:
    """The plain value if it is a mapping, as it should be; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a plain list; else none."""
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []


def is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def shared(root: Node) -> set[int]:
    """Nodes, by id, that an alias elsewhere stands for as well."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Alias):
            found.add(id(node.target))
        elif is_list(node):
            waiting += node.value
        elif is_mapping(node):
            waiting += [part for pair in node.value for part in pair]
    return found


def scalars(root: Node) -> Iterator[Node]:
    """All scalars, and mappings that are keys."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if is_list(node):
            waiting += node.value
        elif is_mapping(node):
            for key, value in node.value:
                if is_mapping(key):
                    yield key
                waiting += [key, value]
        else:
            yield node


def end_of(node: Node, text: str) -> int:
    """Index after the last line of a node, before its line end; a comment beside it belongs to
    it."""
    while not node.flow_style if isinstance(node, yaml.CollectionNode) else False:
        node = node.value[-1][1] if is_mapping(node) else node.value[-1]
    end = int(node.end_mark.index)
    if getattr(node, "style", None) in ("|", ">"):
        head = text[node.start_mark.index : line_end(text, node.start_mark.index)]
        if not re.match(r"\S*\+", head):  # blank lines after it are not in it
            end = node.start_mark.index + len(text[node.start_mark.index : end].rstrip())
        else:
            end = max(text.rfind("\n", 0, end), 0)
            return end - 1 if text[end - 1 : end] == "\r" else end
    return line_end(text, end)


def line_end(text: str, index: int) -> int:
    """Index of the end of the line that has the index in it."""
    end = text.find("\n", index)
    if end < 0:
        return len(text)
    return end - 1 if end > index and text[end - 1] == "\r" else end
