"""An exception of its own stands for something that a caller does about it."""

import ast
from collections.abc import Iterator

from tests.repo.checkout import python_files, relative

ROOMS = ("engine", "exporter", "kvscope", "kvscope_events")
_ASKING = {"add_exception_handler", "isinstance", "suppress"}
BUGS = {
    "OutOfBlocksError": "the scheduler asks first whether there are enough",
    "OutOfHostBlocksError": "the same of the host's blocks",
    "ReplacedError": "any error of the observer's start switches it off; the log says which",
}
"""Exceptions that no caller catches by name, and the reason for having them."""


def names_in(node: ast.AST | None) -> Iterator[str]:
    if node is not None:
        yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def caught_in(tree: ast.Module) -> Iterator[str]:
    """Names in `except`, also by way of a tuple, and those that a call asks for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            yield from names_in(node.type)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            yield from names_in(node.value)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else next(names_in(called), "")
            if name in _ASKING:
                for argument in node.args:
                    yield from names_in(argument)


def test_every_exception_is_caught_by_name_somewhere() -> None:
    trees = {relative(path): ast.parse(path.read_text()) for path in python_files(*ROOMS)}
    defined = {
        node.name: name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(base.endswith(("Error", "Exception", "Failure")) for base in names_in_bases(node))
    }
    caught = {name for tree in trees.values() for name in caught_in(tree)}
    unused = {name: where for name, where in defined.items() if name not in caught}
    assert len(defined) > 40
    assert unused.keys() == BUGS.keys(), f"raise the base, or a ValueError: {unused}"


def names_in_bases(node: ast.ClassDef) -> list[str]:
    return [name for base in node.bases for name in names_in(base)]
