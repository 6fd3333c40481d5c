"""Captured pages of real servers give what was counted in them; KVSCOPE_CAPTURES names the folder.

They are too large to be kept here; `tools/checks/check_pages.py` says how they are laid out.
"""

import os
from pathlib import Path

import pytest

from tools.checks.check_pages import Check, checks_in, failures_of

_FOLDER = os.environ.get("KVSCOPE_CAPTURES", "")
CHECKS = list(checks_in(Path(_FOLDER))) if _FOLDER else []


@pytest.mark.skipif(not _FOLDER, reason="KVSCOPE_CAPTURES names no folder of captured pages")
def test_the_folder_has_captures() -> None:
    assert CHECKS, f"nothing in {_FOLDER}"


@pytest.mark.parametrize(
    "check", CHECKS, ids=lambda check: f"{check.page.parent.name} {check.page.name}"
)
def test_a_captured_page_gives_what_was_counted(check: Check) -> None:
    assert failures_of(check) == []
