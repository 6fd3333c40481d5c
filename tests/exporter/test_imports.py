"""The exporter needs of the engine its contract only, and runs without torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = {"kvscope_events.events", "kvscope_events.bus"}
MODULES = [
    path
    for path in sorted((ROOT / "exporter").rglob("*.py"))
    if path.relative_to(ROOT / "exporter").parts[0] != "cli"  # the composition root
]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_the_contract(path: Path) -> None:
    assert {name for name in imported(path) if name.split(".")[0] == "engine"} <= CONTRACT


@pytest.mark.parametrize("folder", ["fold", "catalogue"])
def test_folds_and_catalogue_know_no_prometheus(folder: str) -> None:
    for path in (ROOT / "exporter" / folder).rglob("*.py"):
        assert not any(name.startswith("prometheus_client") for name in imported(path)), path


def test_the_exporter_runs_without_torch_and_without_an_engine() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import exporter.exposition, exporter.web.metrics\n"
        "loaded = {name for name in sys.modules if name.startswith('engine.')}\n"
        "assert loaded == {'kvscope_events.events', 'kvscope_events.bus'}, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
