"""promtool has nothing to say about our families; vLLM's break its rules by their names."""

import subprocess

import pytest

from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import make_exporter
from tests.exporter.scenario import play

_OTHERS = ("vllm:", "process_")


def own_page(exporter: Exporter) -> bytes:
    page, _ = exporter.render()
    lines = page.splitlines(keepends=True)
    others = tuple(
        f"{mark}{name}".encode() for mark in ("", "# HELP ", "# TYPE ") for name in _OTHERS
    )
    return b"".join(line for line in lines if not line.startswith(others))


@pytest.mark.promtool
@pytest.mark.parametrize("moved", [False, True])
def test_promtool_finds_nothing(moved: bool) -> None:
    exporter, subscription = make_exporter()
    if moved:
        play(subscription)
        exporter.render()
    page = own_page(exporter)
    assert page.count(b"# TYPE kvscope_") > 25
    result = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
