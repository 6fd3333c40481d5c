"""The options that our pages and our adviser name are options of SGLang."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from kvscope_exporter.adviser.flags import FLAGS
from kvscope_exporter.adviser.proposal import OPTIONS
from tests.alerts.test_runbooks import OF_SGLANG
from tests.exporter.test_adviser_sglang import OWN
from tests.repo.checkout import ROOT

pytestmark = [pytest.mark.sglang, pytest.mark.nightly]

ADVISED = {flag for option in OPTIONS if option in OWN for flag in FLAGS[option].split()}
_BACKTICKED = re.compile(r"`(--[a-z-]+)")
OF_KVSCOPE = {"--url"}
"""Options of ours on the page about SGLang."""


def of_the_table() -> set[str]:
    """The second column of the table of options in the runbooks' README."""
    text = (ROOT / "alerts" / "runbooks" / "README.md").read_text()
    _, _, table = text.partition("| vLLM | SGLang | differs |")
    rows = [line.split(" | ")[1] for line in table.splitlines()[2:12]]
    return {flag for cell in rows for flag in re.findall(r"--[a-z-]+", cell)}


def of_the_guide() -> set[str]:
    text = (ROOT / "docs" / "attach" / "sglang.md").read_text()
    return set(_BACKTICKED.findall(text)) - OF_KVSCOPE


def test_sglang_has_every_option_that_we_name(sglang_python: Path) -> None:
    named = ADVISED | OF_SGLANG | of_the_table() | of_the_guide()
    assert len(named) >= 13
    done = subprocess.run(
        [str(sglang_python), "-m", "sglang.launch_server", "--help"],
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    offered = set(re.findall(r"(--[a-z][a-z-]+)", done.stdout))
    assert named - offered == set()
