"""Who may import whom: the engine knows no exporter, and no command but two needs torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, python_files, relative

CONTRACT = {"kvscope_events.events", "kvscope_events.bus"}
LOADED_BY_COMMANDS = CONTRACT | {"engine.config", "engine.sizing", "engine.workload"}
"""What the composition root may import at module level: all of it without torch."""
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None; "


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            assert node.module is not None
            yield node.module


def everywhere(path: Path) -> set[str]:
    return set(imported(ast.walk(ast.parse(path.read_text()))))


def at_module_level(path: Path) -> set[str]:
    return set(imported(iter(ast.parse(path.read_text()).body)))


def of_package(names: set[str], *packages: str) -> set[str]:
    return {name for name in names if name.split(".")[0] in packages}


def run_without_torch(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", python_files("engine"), ids=relative)
def test_the_engine_never_imports_the_exporter(path: Path) -> None:
    assert not of_package(everywhere(path), "exporter", "dashboards", "tests")


@pytest.mark.parametrize("path", python_files("exporter"), ids=relative)
def test_the_exporter_imports_the_contract_and_its_root_no_torch(path: Path) -> None:
    if path.is_relative_to(ROOT / "exporter" / "cli"):
        names = of_package(at_module_level(path), "engine")
        allowed = {".".join(name.split(".")[:2]) for name in names} <= LOADED_BY_COMMANDS
        assert allowed, f"import inside the function that needs it: {names - LOADED_BY_COMMANDS}"
    else:
        assert of_package(everywhere(path), "engine") <= CONTRACT
    assert not of_package(everywhere(path), "dashboards", "tests")


def test_importing_the_engine_package_runs_nothing() -> None:
    body = ast.parse((ROOT / "engine" / "__init__.py").read_text()).body
    assert [node for node in body if not isinstance(node, ast.Expr)] == []


def test_every_exporter_module_imports_without_torch() -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in python_files("exporter")
        if path.name != "__main__.py"
    )
    assert "exporter.cli.serve" in modules
    run_without_torch("import " + ", ".join(modules))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["metrics"], "# Metrics"),
        (["load", "--help"], "--concurrency"),
        (["serve", "--help"], "--model"),
        (["demo", "--help"], "--duration"),
        (["plan", "--layers", "48", "--kv-heads", "4", "--head-dim", "128"], "96 KiB"),
        (["--version"], "kvscope "),
    ],
    ids=" ".join,
)
def test_a_command_runs_without_torch(arguments: list[str], expected: str) -> None:
    code = (
        "import os; os.environ['COLUMNS'] = '200'; "
        f"sys.argv = ['kvscope', *{arguments!r}]; from exporter.cli import main; main()"
    )
    assert expected in run_without_torch(code)
