"""The reference of commands and environment variables is current and complete."""

import ast
import re
from collections.abc import Callable

import pytest

from tests.repo.checkout import ROOT, python_files, relative
from tools.reference.__main__ import FOLDER, PAGES
from tools.reference.environment import DECLARED

_VARIABLE = re.compile(r"(?:KVSCOPE|OTEL|CUDA|VLLM|XDG|OMP|TRITON)_[A-Z0-9_]*[A-Z0-9]")
_PRODUCT = ("engine", "exporter", "kvscope", "kvscope_events", "monitoring")
_NOT_READ = {"OTEL_EXPORTER_OTLP", "VLLM_CPU_KVCACHE_SPACE"}  # a prefix; a vLLM's own, reported


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_the_reference_is_current(name: str, page: Callable[[], str]) -> None:
    assert (FOLDER / name).read_text() == page(), f"{name} is out of date: run `make docs`"


def test_every_variable_that_the_product_reads_is_in_the_reference() -> None:
    page = (FOLDER / "environment.md").read_text()
    listed = set(re.findall(r"^\| `([A-Z0-9_]+)`", page, re.MULTILINE))
    for path in python_files(*_PRODUCT):
        strings = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        read = {text for text in strings if _VARIABLE.fullmatch(text)} - _NOT_READ
        assert read <= listed, f"{relative(path)}: {read - listed}: list it with its meaning"


def test_the_reference_lists_no_variable_that_nothing_reads() -> None:
    sources = "\n".join(path.read_text() for path in python_files(*_PRODUCT))
    compose = (ROOT / "docker-compose.yml").read_text()
    ours = {name for name in DECLARED if name.startswith("KVSCOPE_")}
    assert {name for name in ours if name not in sources + compose} == set()
