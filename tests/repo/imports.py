"""The packages that each package may import, and the imports of every module of the product."""

import ast
from collections import defaultdict
from functools import cache

from tests.repo.checkout import module_of, modules_of

_SHARED = {"kvscope_events", "kvscope_exporter"}
ALLOWED: dict[str, set[str]] = {
    "kvscope_events": {"kvscope_events"},
    "kvscope_engine": {"kvscope_engine", "kvscope_events"},
    "kvscope_exporter": _SHARED,
    "kvscope": {"kvscope", "kvscope_alerts", "kvscope_engine", *_SHARED},
    "kvscope_monitoring": {"kvscope_monitoring", *_SHARED},
    "dashboards": {"dashboards", "kvscope_monitoring", *_SHARED},
    "kvscope_alerts": {"kvscope_alerts", "kvscope_monitoring", *_SHARED},
    "deploy": {
        *("deploy", "dashboards", "kvscope_alerts", "kvscope_monitoring", *_SHARED),
        "kvscope",  # the containers that `kvscope inject` adds
    },
}
"""Packages that each package may import."""
Module = tuple[str, ...]
Graph = dict[Module, set[Module]]


@cache
def module_graph() -> Graph:
    """Every module of the product, and those of the product that it imports, anywhere in it."""
    trees = {module_of(path): ast.parse(path.read_text()) for path in modules_of(*ALLOWED)}
    graph: Graph = defaultdict(set)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                base = tuple(node.module.split("."))
                names = [(*base, alias.name) for alias in node.names]
                graph[module] |= {name if name in trees else base for name in names}
            elif isinstance(node, ast.Import):
                graph[module] |= {tuple(alias.name.split(".")) for alias in node.names}
        graph[module] = {imported for imported in graph[module] if imported in trees} - {module}
    return graph


def rooms_of(parent: Module, graph: Graph) -> Graph:
    """Files and folders directly in a folder, and which of them import which."""
    depth = len(parent)
    rooms: Graph = defaultdict(set)
    for module, imports in graph.items():
        if module[:depth] == parent and len(module) > depth:
            room = module[: depth + 1]
            inside = {name[: depth + 1] for name in imports if name[:depth] == parent}
            rooms[room] |= {name for name in inside if len(name) > depth} - {room}
    return rooms
