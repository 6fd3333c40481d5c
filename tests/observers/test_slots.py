"""Folders that servers on one machine share out among themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvscope_events.observers.slots import NoSlotError, take_slot
from tests.support.process import ROOT

HOLD = """
import sys
from kvscope_events.observers.slots import take_slot
print(take_slot(sys.argv[1], 3), flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def slot_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_lowest_free_folder_is_taken_and_a_killed_process_holds_none(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    with holder(folder) as first, holder(folder) as second:
        assert {slot_of(first), slot_of(second)} == {f"{folder}/0", f"{folder}/1"}
        with holder(folder) as third:
            assert slot_of(third) == f"{folder}/2"
            with pytest.raises(NoSlotError, match="all 3 folders"):
                take_slot(str(folder), 3)
            third.kill()
            third.wait()
            with holder(folder) as fourth:
                assert slot_of(fourth) == f"{folder}/2"
                fourth.kill()
        first.kill()
        second.kill()
    assert (folder / "0").stat().st_mode & 0o777 == 0o700
