"""Captures of real servers give the counts that were taken of them by other means.

They are too large for this repository: KVSCOPE_CAPTURES names a folder of them, in the form that
tools/checks/check_captures.py describes.
"""

import os
from pathlib import Path

import pytest

from tools.checks.check_captures import main

CAPTURES = os.environ.get("KVSCOPE_CAPTURES")


@pytest.mark.slow
@pytest.mark.skipif(CAPTURES is None, reason="KVSCOPE_CAPTURES names no folder of captures")
def test_captures_of_real_servers_give_their_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert CAPTURES is not None
    differs = main(Path(CAPTURES))
    assert not differs, capsys.readouterr().out
