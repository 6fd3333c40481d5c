"""No two files and no two rooms import each other, not even for the names of types alone."""

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.repo.checkout import module_of, modules_of
from tests.repo.imports import ALLOWED, Graph, Module, module_graph, rooms_of

FOLDERS = sorted(
    {(), *(module_of(path.with_name("__init__.py")) for path in modules_of(*ALLOWED))},
)


def circle_in(graph: Graph) -> list[str]:
    """The first circle that there is, as names of modules."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [".".join(module) for module in error.args[1]]
    return []


def test_no_two_files_import_each_other() -> None:
    assert circle_in(module_graph()) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: ".".join(folder) or "all")
def test_no_two_rooms_of_a_folder_import_each_other(folder: Module) -> None:
    assert circle_in(rooms_of(folder, module_graph())) == []


def test_a_circle_of_rooms_is_found_where_no_two_files_form_one() -> None:
    graph: Graph = {("a", "b", "c"): {("a", "d", "e")}, ("a", "d", "f"): {("a", "b", "g")}}
    assert circle_in(graph) == []
    assert circle_in(rooms_of(("a",), graph)) in (["a.b", "a.d", "a.b"], ["a.d", "a.b", "a.d"])


def test_the_root_of_the_exporter_lists_rooms() -> None:
    """A reader who opens the folder sees the architecture and not what it is made of."""
    names = [module_of(path) for path in modules_of("kvscope_exporter")]
    rooms = {name[1] for name in names if len(name) > 2}
    loose = {name[1] for name in names if len(name) == 2} - rooms
    assert len(loose) <= 5, loose
