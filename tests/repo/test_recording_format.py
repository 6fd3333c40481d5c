"""There is one format of recordings: one suffix, one writer of its chunks, one reader."""

import ast
import re

from kvscope_exporter.recorder.ring import SUFFIX
from tests.repo.checkout import ROOT, project_files, python_files, relative

PRODUCT = ("kvscope_events", "engine", "exporter", "kvscope", "tools", "benchmarks")
MAY_CALL = {
    "pack_chunk": {"exporter/kvscope_exporter/recorder/ring.py"},
    "read_chunks": {
        "exporter/kvscope_exporter/recorder/format.py",
        "exporter/kvscope_exporter/recorder/reader.py",
    },
    "whole_chunks": {"exporter/kvscope_exporter/recorder/ring.py"},
}
"""The modules that write chunks and read them, besides the tests."""
TOLD = {ROOT / "CHANGELOG.md"}
"""May name what is gone."""


def test_no_recording_has_another_suffix() -> None:
    others = {}
    for path in {*project_files()} - TOLD:
        content = path.read_bytes().decode(errors="replace")
        found = {*re.findall(r"\.kvs[a-z]\b", content)} - {SUFFIX}
        if found:
            others[relative(path)] = found
    assert not others


def test_one_module_writes_chunks_and_one_reads_them() -> None:
    callers: dict[str, set[str]] = {name: set() for name in MAY_CALL}
    for path in python_files(*PRODUCT):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                callers.get(node.func.id, set()).add(relative(path))
    assert callers == MAY_CALL
