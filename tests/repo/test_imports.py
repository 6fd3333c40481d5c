"""Rules of imports: a ground floor, two wings that do not know each other, and a roof."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.checkout import (
    ROOT,
    folder_of,
    module_of,
    modules_of,
    python_files,
    relative,
)
from tests.repo.imports import ALLOWED

OURS = {
    "kvscope_events",
    "kvscope_engine",
    "kvscope_exporter",
    "kvscope",
    "kvscope_monitoring",
    "dashboards",
    "kvscope_alerts",
    "deploy",
    "benchmarks",
    "tools",
    "tests",
}
LOADED_BY_COMMANDS = {
    *("kvscope_engine.config", "kvscope_engine.option", "kvscope_engine.sizing"),
    "kvscope.load",
}
"""Modules that a command may import at module level, all without torch."""
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


def test_imports_go_one_way(subtests: pytest.Subtests) -> None:
    for path in modules_of(*ALLOWED):
        with subtests.test(relative(path)):
            assert not of_package(everywhere(path), *(OURS - ALLOWED[module_of(path)[0]]))


def test_a_command_imports_torch_only_inside_functions(subtests: pytest.Subtests) -> None:
    for path in python_files("kvscope/cli"):
        with subtests.test(relative(path)):
            names = of_package(at_module_level(path), "kvscope_engine")
            allowed = {".".join(name.split(".")[:2]) for name in names} <= LOADED_BY_COMMANDS
            assert allowed, (
                f"import inside the function that needs it: {names - LOADED_BY_COMMANDS}"
            )


@pytest.mark.parametrize("folder", ["fold", "catalogue"])
def test_folds_and_catalogue_know_no_prometheus(folder: str) -> None:
    for path in python_files(f"exporter/kvscope_exporter/{folder}"):
        assert not of_package(everywhere(path), "prometheus_client"), path


def test_the_catalogue_loads_no_client() -> None:
    """Dashboards, rules and an engine that serves its own page read it, and fetch nothing."""
    run_without_torch("import kvscope_exporter.catalogue; assert 'httpx' not in sys.modules")


@pytest.mark.parametrize("package", ["kvscope_engine", "kvscope_events"])
def test_importing_a_package_runs_nothing(package: str) -> None:
    """But that kvscope_events has the version of all of kvscope."""
    body = ast.parse((folder_of(package) / "__init__.py").read_text()).body
    code = [ast.unparse(node) for node in body if not isinstance(node, ast.Expr)]
    assert [line for line in code if not line.startswith("__version__ = ")] == []


def test_the_exporter_runs_without_torch_and_without_an_engine() -> None:
    run_without_torch(
        "import kvscope_exporter.sidecar.sidecar, kvscope_exporter.targets.page; "
        "loaded = {n for n in sys.modules if n.split('.')[0] == 'kvscope_engine'}; "
        "assert not loaded, loaded"
    )


def test_every_module_of_exporter_and_commands_imports_without_torch() -> None:
    modules = sorted(
        ".".join(module_of(path))
        for path in modules_of("kvscope_exporter", "kvscope")
        if path.name != "__main__.py"
    )
    assert "kvscope.cli.serve" in modules
    run_without_torch("import " + ", ".join(modules))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["docs", "metrics"], "# Metrics"),
        (["load", "--help"], "--concurrency"),
        (["engine", "serve", "--help"], "--model"),
        (["sidecar", "--help"], "--events"),
        (["run", "--help"], "kvscope run -- vllm serve"),
        (["observer", "install", "--help"], "DIR"),
        (["demo", "--help"], "--duration"),
        (["whatif", "--help"], "--capacity"),
        (["rec", "save", "--help"], "--max-bytes"),
        (["plan", "--layers", "48", "--kv-heads", "4", "--head-dim", "128"], "96 KiB"),
        (["--version"], "kvscope "),
    ],
    ids=" ".join,
)
def test_a_command_runs_without_torch(arguments: list[str], expected: str) -> None:
    code = (
        "import os; os.environ['COLUMNS'] = '200'; "
        f"sys.argv = ['kvscope', *{arguments!r}]; from kvscope.cli import main; main()"
    )
    assert expected in run_without_torch(code)
