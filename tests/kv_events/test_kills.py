"""Publishers that are killed in the middle of a run: each life is shown whole, and alone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kv_events.watching import Watched, watched
from tests.repo.checkout import ROOT
from tests.support.waiting import wait_for


@contextmanager
def publishing(there: Watched, count: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that stores this many blocks; killed at the end with SIGKILL."""
    command = [sys.executable, "-m", "tests.kv_events.endless", there.endpoint, there.replay]
    with subprocess.Popen(
        [*command, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stored(there: Watched) -> float:
    return there.shown("kvscope_kv_tier_stored_blocks_total", tier="device") or 0


@pytest.mark.slow
def test_each_life_of_a_server_that_is_killed_is_shown_alone(tmp_path: Path) -> None:
    with watched(tmp_path) as there:
        sessions = set()
        for _ in range(3):
            with publishing(there, 100_000):
                wait_for(lambda: there.source.state_known and stored(there) > 100)
                sessions.add(there.source.session)
            wait_for(lambda: not there.source.up)
            assert there.blocks() is None
        with publishing(there, 500) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "said all\n"
            there.expect(500)
            sessions.add(there.source.session)
        assert len(sessions) == 4
        assert there.source.batches_dropped == 0
        assert not any(there.source.decode_errors.values())


@pytest.mark.slow
def test_who_comes_after_a_kill_finds_the_next_life_whole(tmp_path: Path) -> None:
    with watched(tmp_path) as first:
        with publishing(first, 300):
            first.expect(300)
        with publishing(first, 400) as process:
            assert process.stdout is not None
            process.stdout.readline()
            second = Watched(tmp_path)
            first.expect(400)
            second.expect(400)
            second.exporter.stop()
