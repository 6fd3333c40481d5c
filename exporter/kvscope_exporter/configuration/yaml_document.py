"""YAML as plain values, with the line of each path; refuses duplicate keys."""

from dataclasses import dataclass, field

import yaml

from kvscope_exporter.configuration.error import ConfigurationError


@dataclass(frozen=True, slots=True)
class Document:
    """A document, and the positions of its parts."""

    content: object
    lines: dict[str, int] = field(default_factory=dict)
    """Line by path, such as `servers[2].url`; the first line is 1."""

    def line_of(self, path: str) -> int | None:
        """The line of a path, or of the nearest enclosing part."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


def parse_yaml(text: str) -> Document:
    """One document of mappings, lists and scalars. Raises ConfigurationError."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(None)
        lines = {"": node.start_mark.line + 1}
        _note(node, "", lines, set())
        return Document(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigurationError("", problem, "", line) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # such as an impossible date
        problem = f"not valid YAML: {' '.join(str(error).split())}"
        raise ConfigurationError("", problem, "") from None
    except (LookupError, AttributeError):  # PyYAML's constructors raise these for `!!int ""`
        raise ConfigurationError("", "a value does not fit its tag", "leave out the `!!`") from None


def _note(node: yaml.Node, path: str, lines: dict[str, int], noted: set[int]) -> None:
    """noted: parts whose insides have their lines, under the first of their paths: a part with an
    anchor stands wherever it is named, and those that name each other would never end."""
    if id(node) in noted:
        return
    noted.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            inner = f"{path}[{number}]"
            lines[inner] = item.start_mark.line + 1
            _note(item, inner, lines, noted)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if inner in lines:
                raise ConfigurationError(inner, "given twice", "keep one", line)
            lines[inner] = line
            _note(value, inner, lines, noted)
