"""An engine is known in one place: counts of what its questions keep for themselves.

Each number is a ceiling that only falls. A question that needs more takes it from the state.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from kvscope_events.events import EngineEvent
from kvscope_exporter.state.fold import METHODS
from tests.repo.checkout import python_files

ROOMS = (
    *(f"exporter/kvscope_exporter/{room}" for room in ("state", "live", "tracing", "targets")),
    "kvscope/export",
    "kvscope/whatif",
)
EVENTS = frozenset(event.__name__ for event in get_args(EngineEvent))

HANDLERS = {"PoolCounted": 10, "PoolCreated": 16, "PoolSnapshot": 13, "StepCompleted": 13}
"""Classes that handle an event of these types, transitions aside; of any other type it is at most
OTHER_HANDLERS."""
OTHER_HANDLERS = 9
GAPS = 28
"""Methods that handle lost batches, those that only reset their own sums included."""
PENDING = 9
"""Methods that count what a question remembers until it ends."""
PRIVATE = 54
"""Attributes of a class that are dicts or sets by the number of a request, sequence or block."""
BY_BLOCK = 13
"""Attributes that are arrays by the number of a block."""

_ARRAYS = ("array", "bytearray")
_TABLES = ("dict[int", "set[int", "OrderedDict[int")


def classes() -> Iterator[ast.ClassDef]:
    for path in python_files(*ROOMS):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node


def handlers() -> Counter[str]:
    """By event: classes with a method for it, by its name or in a table."""
    found: Counter[str] = Counter()
    for each in classes():
        tables = (node for node in ast.walk(each) if isinstance(node, ast.Dict))
        keys = {key.id for table in tables for key in table.keys if isinstance(key, ast.Name)}
        names = {node.name for node in each.body if isinstance(node, ast.FunctionDef)}
        named = {event.__name__ for event, name in METHODS.items() if name in names}
        found.update(keys & EVENTS | named)
    return found


def methods(name: str) -> int:
    return sum(
        isinstance(node, ast.FunctionDef) and node.name == name
        for each in classes()
        for node in each.body
    )


def attributes() -> Iterator[ast.AnnAssign | ast.Assign]:
    """Assignments to attributes of `self` in constructors and elsewhere."""
    for each in classes():
        for node in ast.walk(each):
            targets: list[ast.expr] = []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            elif isinstance(node, ast.Assign):
                targets = node.targets
            if any(isinstance(target, ast.Attribute) for target in targets):
                assert isinstance(node, ast.AnnAssign | ast.Assign)
                yield node


def private_tables() -> int:
    return sum(
        isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(_TABLES)
        for node in attributes()
    )


def arrays() -> int:
    found: set[str] = set()
    for node in attributes():
        value = node.value
        if isinstance(value, ast.BinOp):
            value = value.left
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if value.func.id in _ARRAYS:
                found.add(ast.unparse(target))
    return len(found)


def test_an_event_is_handled_in_few_places() -> None:
    for event, count in handlers().items():
        assert count <= HANDLERS.get(event, OTHER_HANDLERS), event


def test_the_state_remembers_and_forgets_for_all() -> None:
    assert methods("on_gap") + methods("on_lost") <= GAPS
    assert methods("num_pending") <= PENDING
    assert private_tables() <= PRIVATE
    assert arrays() <= BY_BLOCK
