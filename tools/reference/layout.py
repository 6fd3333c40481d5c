"""The layout of the project: its packages and rooms, and which of them imports which."""

import ast
from collections.abc import Iterator

from tests.repo.checkout import module_of, modules_of
from tests.repo.imports import ALLOWED, Graph, Module, module_graph, rooms_of

_PICTURED = ("kvscope_exporter", "kvscope")
"""Packages with enough rooms for a picture of their own."""
_HEAD = """\
# Layout

Packages, the rooms in them, and which imports which: `make docs` draws it from the code. An arrow
that follows from others is left out. [Architecture](../internals/architecture.md) says why, and
[former names](../internals/names.md) where the rooms of before are.
"""


def layout_page() -> str:
    graph = module_graph()
    parts = [_HEAD, "## Packages\n", _picture(rooms_of((), graph)), _table(())]
    for package in _PICTURED:
        rooms = rooms_of((package,), graph)
        parts += [f"## `{package}`\n", _picture(rooms), _table((package,))]
    return "\n".join(parts)


def _picture(rooms: Graph) -> str:
    """Mermaid, which GitHub and the site draw."""
    arrows = sorted(
        f"    {room[-1]} --> {other[-1]}"
        for room, imported in rooms.items()
        for other in imported
        if not any(other in _reached(between, rooms) for between in imported - {other})
    )
    return "\n".join(["```mermaid", "graph TD", *arrows, "```\n"])


def _reached(room: Module, rooms: Graph) -> set[Module]:
    """All that a room imports, directly or through others."""
    found: set[Module] = set()
    waiting = [room]
    while waiting:
        new = rooms.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _table(parent: Module) -> str:
    rows = "\n".join(f"| `{name}` | {what} |" for name, what in _rooms(parent))
    return f"| Name | What is in it |\n| --- | --- |\n{rows}\n"


def _rooms(parent: Module) -> Iterator[tuple[str, str]]:
    """Its packages, or the rooms of a package: name and purpose."""
    modules = {module_of(path): path for path in modules_of(*ALLOWED)}
    modules = {name: path for name, path in modules.items() if name[: len(parent)] == parent}
    names = {name[: len(parent) + 1] for name in modules if len(name) > len(parent)}
    for room in sorted(names):
        what = ast.get_docstring(ast.parse(modules[room].read_text())) or ""
        yield room[-1], " ".join(what.split("\n\n")[0].split())
