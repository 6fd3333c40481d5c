"""YAML as plain values, without what can make a small file large: aliases, merge keys, tags.

The values are built from the parser's events, so that every limit holds while the file is read.
"""

from dataclasses import dataclass, field
from typing import NoReturn

import yaml

from exporter.configuration.error import ConfigurationError

MAX_DEPTH = 12
"""Levels of lists and mappings; a configuration has five."""
MAX_VALUES = 50_000
"""Keys and values in all; 256 servers have a tenth of that."""
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """A document, and where its parts stand."""

    content: object
    lines: dict[str, int] = field(default_factory=dict)
    """Line by path, such as `servers[2].url`; the first line is 1."""

    def line_of(self, path: str) -> int | None:
        """The line of a path, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


def parse_yaml(text: str) -> Document:
    """One document of mappings, lists and scalars. Raises ConfigurationError."""
    try:
        return _Reader(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigurationError("", problem, "", line) from None
    except yaml.YAMLError as error:
        problem = f"not valid YAML: {' '.join(str(error).split())}"
        raise ConfigurationError("", problem, "") from None


class _Reader:
    def __init__(self, text: str) -> None:
        self._loader = yaml.SafeLoader(text)
        self._values = 0
        self._lines: dict[str, int] = {}

    def document(self) -> Document:
        self._loader.get_event()  # of the stream
        if self._loader.check_event(yaml.StreamEndEvent):
            return Document(None)
        self._loader.get_event()  # of the document
        content = self._value("", 0)
        self._loader.get_event()
        if not self._loader.check_event(yaml.StreamEndEvent):
            self._refuse("", "a second document", "write one document only, without a further ---")
        return Document(content, self._lines)

    def _value(self, path: str, depth: int) -> object:
        event = self._loader.peek_event()
        self._lines[path] = event.start_mark.line + 1
        self._values += 1
        if self._values > MAX_VALUES:
            self._refuse(path, f"over {MAX_VALUES} values", "split the servers among sidecars")
        if depth > MAX_DEPTH:
            self._refuse(path, f"nested over {MAX_DEPTH} levels deep", "see docs/guides/sidecar.md")
        if isinstance(event, yaml.AliasEvent):
            self._refuse(path, f"the alias *{event.anchor}", "write the value out")
        if event.tag not in (None, _TEXT):
            self._refuse(path, f"the tag {event.tag}", "leave the tag out")
        self._loader.get_event()
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        return self._scalar(path, event)

    def _sequence(self, path: str, depth: int) -> list[object]:
        items: list[object] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._value(f"{path}[{len(items)}]", depth + 1))
        self._loader.get_event()
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, object]:
        content: dict[str, object] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            line = self._loader.peek_event().start_mark.line + 1
            if not self._loader.check_event(yaml.ScalarEvent):
                self._refuse(path, "a key that is not text", "write KEY: VALUE")
            key = self._value(path, depth + 1)
            if not isinstance(key, str):
                self._refuse(path, f"the key {key!r} is not text", "put it in quotes", line)
            inner = f"{path}.{key}" if path else key
            if key in content:
                self._refuse(inner, "given twice", "keep one", line)
            content[key] = self._value(inner, depth + 1)
            self._lines[inner] = line
        self._loader.get_event()
        return content

    def _scalar(self, path: str, event: yaml.ScalarEvent) -> object:
        tag = event.tag or self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag == _MERGE:
            self._refuse(path, "the merge key <<", "write the values out")
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            return self._loader.construct_object(node)
        except ValueError:  # a date that does not exist, a number of thousands of digits
            self._refuse(path, f"the value {event.value[:40]!r}", "put it in quotes if it is text")

    def _refuse(self, path: str, problem: str, remedy: str, line: int | None = None) -> NoReturn:
        line = line or self._loader.peek_event().start_mark.line + 1
        raise ConfigurationError(path, problem, remedy, line)
