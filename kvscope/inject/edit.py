"""Insertions into a document's text, and their exact inverse.

What is inserted is whole lines, or whole elements between brackets, so that removing an element
leaves what stood there before, byte for byte.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kvscope.inject.tree import (
    LeftAloneError,
    Node,
    child,
    end_of,
    entry,
    is_list,
    is_mapping,
    is_null,
    line_end,
    plain,
    shared,
)

WAS_EMPTY = "# kvscope: empty before"
"""Marks a key that had no value, which stays when what follows is removed."""

_INNERMOST = -(1 << 60)
_TRAILING_COMMA = re.compile(r"\s*,")


_Change = tuple[int, int, int, str]
"""Begin of what is replaced, its order at that place, end, and the new text."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """An element between brackets that goes; its comma depends on which others go."""

    collection: Node
    number: int


class Editor:
    """Collects the changes of one document, and makes all of them at once."""

    def __init__(self, text: str, root: Node) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._shared = shared(root)
        self._changes: list[_Change | _Cut] = []
        self._offset = 2
        """Columns by which a list is indented below its key."""

    def checkpoint(self) -> int:
        return len(self._changes)

    def back_to(self, checkpoint: int) -> None:
        """Forget later changes."""
        del self._changes[checkpoint:]

    def indent_like(self, mapping: Node, key: str) -> None:
        """Indent lists as the one at the key is."""
        found = entry(mapping, key)
        if found and is_list(found[1]) and not found[1].flow_style:
            self._offset = max(found[1].start_mark.column - found[0].start_mark.column, 0)

    def result(self) -> str:
        """The changed text. At one place, what belongs to inner collections comes first."""
        parts, done = [], 0
        changes = [change for change in self._changes if not isinstance(change, _Cut)]
        changes += _without_commas([change for change in self._changes if isinstance(change, _Cut)])
        for start, _, end, text in sorted(changes, key=lambda change: change[:2]):
            parts += [self._text[done:start], text]
            done = max(done, end)
        return "".join(parts) + self._text[done:]

    def own(self, *nodes: Node) -> None:
        """Raises LeftAloneError if an alias elsewhere would change with one of the nodes."""
        for node in nodes:
            if id(node) in self._shared:
                line = node.start_mark.line + 1
                raise LeftAloneError(f"line {line} has an anchor that is used again: write it out")

    def extend(self, mapping: Node, key: str, elements: Sequence[object]) -> None:
        """Append to the list at a key, which may be missing or empty. Raises LeftAloneError."""
        self._add(mapping, key, list(elements), is_list)

    def put(self, mapping: Node, key: str, content: Mapping[str, object]) -> None:
        """Add entries to the mapping at a key, which may be missing or empty. Raises
        LeftAloneError."""
        self._add(mapping, key, dict(content), is_mapping)

    def set(self, mapping: Node, key: str, content: object) -> None:
        """Add an entry with a key that the mapping does not have."""
        self._insert(mapping, {key: content})

    def widen(self, scalar: Node, *, before: str = "", after: str = "", skip: int = 0) -> None:
        """Put text before or after that of a scalar, whose first characters may be skipped.
        Raises LeftAloneError."""
        start, end = self._inside(scalar)
        for place, text in ((start + skip, before), (end, after)):
            if text:
                self._changes.append((place, _INNERMOST, place, text))

    def narrow(
        self, scalar: Node, *, before: str = "", after: str = "", skip: int = 0, left: str = ""
    ) -> None:
        """Take text off again. left: put in its place."""
        start, end = self._inside(scalar)
        for place, text in ((start + skip, before), (end - len(after), after)):
            if text:
                self._changes.append((place, 0, place + len(text), left))

    def drop(self, mapping: Node, key: str, is_ours: Callable[[Any], bool]) -> bool:
        """Remove elements of the list, or entries (key, value) of the mapping, at a key, and the
        key if nothing else is left. Whether the mapping has nothing left either."""
        found = entry(mapping, key)
        if found is None:
            return False
        inner = child(mapping, key)
        if inner is None or not (is_list(inner) or is_mapping(inner)) or not inner.value:
            return False
        given = inner.value
        mine = [is_ours(_content(element)) for element in given]
        if not any(mine):
            return False
        self.own(mapping, inner)
        if all(mine) and not self._was_there(found[0], inner):
            if len(mapping.value) == 1:
                return True
            self.discard(mapping, key)
            return False
        if all(mine) and inner.flow_style:
            start = self._bracket(inner) + 1
            comma = _TRAILING_COMMA.match(self._text, _end(given[-1]))
            self._changes.append((start, 0, comma.end() if comma else _end(given[-1]), ""))
            return False
        for number, ours in enumerate(mine):
            if ours:
                self._cut(inner, number)
        if all(mine):
            start = line_end(self._text, found[0].end_mark.index)
            self._changes.append((start, 0, self._before_line(_start(given[0])), ""))
        return False

    def discard(self, mapping: Node, key: str) -> None:
        """Remove an entry."""
        for number, pair in enumerate(mapping.value):
            if pair[0].value == key:
                self._cut(mapping, number)

    def _add(self, mapping: Node, key: str, content: Any, fits: Callable[[Node], bool]) -> None:
        inner = child(mapping, key)
        self.own(mapping, *([] if inner is None else [inner]))
        if inner is None:
            self._insert(mapping, {key: content})
        elif is_null(inner) and inner.start_mark.index == inner.end_mark.index:
            if mapping.flow_style:
                raise LeftAloneError(f"its `{key}` has no value: take it out")
            self._fill(mapping, entry(mapping, key), content)
        elif is_null(inner):
            raise LeftAloneError(f"its `{key}` is {inner.value}: take it out")
        elif not fits(inner):
            raise LeftAloneError(f"its `{key}` is not what a manifest has there")
        else:
            self._insert(inner, content)

    def _insert(self, collection: Node, content: Any) -> None:
        if collection.flow_style:
            self._insert_flow(collection, content)
            return
        column = collection.start_mark.column
        place = end_of(collection, self._text)
        self._change(place, collection, self._lines(content, column))

    def _insert_flow(self, collection: Node, content: Any) -> None:
        text = json.dumps(content)[1:-1]
        if not collection.value:
            self._change(self._bracket(collection) + 1, collection, f" {text}")
            return
        self._change(_end(collection.value[-1]), collection, f", {text}")

    def _fill(self, mapping: Node, found: Any, content: Any) -> None:
        """Lines below a key without a value."""
        column = mapping.start_mark.column
        inner = column + (self._offset if isinstance(content, list) else 2)
        place = line_end(self._text, found[0].end_mark.index)
        comment = f"{self._newline}{' ' * inner}{WAS_EMPTY}"
        self._change(place, found[1], comment + self._lines(content, inner))

    def _lines(self, content: Any, column: int) -> str:
        text = yaml.dump(
            content,
            Dumper=_IndentedDumper if self._offset else _Flush,
            sort_keys=False,
            default_flow_style=False,
            width=1_000,
        )
        # A list of its own is dumped from the first column, whatever the dumper.
        lines = text.rstrip("\n").split("\n")
        cut = len(lines[0]) - len(lines[0].lstrip(" "))
        return "".join(f"{self._newline}{' ' * column}{line[cut:]}" for line in lines)

    def _change(self, place: int, collection: Node, text: str) -> None:
        self._changes.append((place, -collection.start_mark.index, place, text))

    def _inside(self, scalar: Node) -> tuple[int, int]:
        """Begin and end of a scalar's text, without its quotes."""
        start, end = scalar.start_mark.index, scalar.end_mark.index
        quoted = 1 if scalar.style in ("'", '"') else 0
        if self._text[start + quoted : end - quoted] != scalar.value:
            line = scalar.start_mark.line + 1
            raise LeftAloneError(f"line {line}: write the value on one line, without escapes")
        return start + quoted, end - quoted

    def _was_there(self, key: Node, inner: Node) -> bool:
        """Whether the key was there, with an empty value, before it was filled: a comment says so,
        or the space that is behind no bracket of a value made with its key. A line end there is
        another program's, which has kept no such mark."""
        if inner.flow_style:
            return self._text[self._bracket(inner) + 1] == " "
        return WAS_EMPTY in self._text[key.end_mark.index : _begin(inner)]

    def _bracket(self, collection: Node) -> int:
        return self._text.index("[" if is_list(collection) else "{", _begin(collection))

    def _cut(self, collection: Node, number: int) -> None:
        """Remove an element, with its lines, or with a comma. Raises LeftAloneError."""
        if collection.flow_style:
            self._changes.append(_Cut(collection, number))
            return
        element = collection.value[number]
        start = _start(element)
        following = collection.value[number + 1 :]
        before = self._text[self._line(start) : start].strip()
        if isinstance(element, tuple) and before == "-" and following:
            # The next key takes its place beside the dash.
            self._changes.append((start, 0, _start(following[0]), ""))
            return
        if before not in ("", "-") or (isinstance(element, tuple) and before):
            line = self._text.count("\n", 0, start) + 1
            raise LeftAloneError(f"line {line}: something else is on the line")
        last = element[1] if isinstance(element, tuple) else element
        self._changes.append((self._before_line(start), 0, end_of(last, self._text), ""))

    def _line(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _before_line(self, index: int) -> int:
        """End of the line before."""
        end = max(self._line(index) - 1, 0)
        return end - 1 if self._text[end - 1 : end] == "\r" else end


class _IndentedDumper(yaml.SafeDumper):  # type: ignore[misc]
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Flush(yaml.SafeDumper):  # type: ignore[misc]
    """Lists begin in the column of their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _without_commas(cuts: Sequence[_Cut]) -> Iterator[_Change]:
    """Each element with the comma before it, or behind it if nothing before it stays."""
    for cut in cuts:
        elements = cut.collection.value
        gone = {other.number for other in cuts if other.collection is cut.collection}
        start, end = _start(elements[cut.number]), _end(elements[cut.number])
        if any(number not in gone for number in range(cut.number)):
            start = _end(elements[cut.number - 1])
        elif cut.number + 1 < len(elements):
            end = _start(elements[cut.number + 1])
        yield start, 0, end, ""


def _content(element: Any) -> Any:
    return (element[0].value, plain(element[1])) if isinstance(element, tuple) else plain(element)


def _start(element: Any) -> int:
    return int((element[0] if isinstance(element, tuple) else element).start_mark.index)


def _end(element: Any) -> int:
    return int((element[1] if isinstance(element, tuple) else element).end_mark.index)


def _begin(node: Node) -> int:
    return int(node.start_mark.index)
