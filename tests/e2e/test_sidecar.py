"""Engines seen from another process: the sidecar's page is the engine's own."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.pages import folded
from tests.support.waiting import wait_for
from tests.support.watched import Watched, assert_equal, sidecar, watched

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(240)]


def load(server: Watched, requests: int = 12) -> None:
    """Shared prefixes, more than the pool holds, several choices: hits, evictions, preemptions."""
    prompts = [f"{'shared ' * 12}{number % 5}{' own' * (number % 7)}" for number in range(requests)]
    with ThreadPoolExecutor(6) as pool:
        for answer in [
            pool.submit(server.complete, prompt, n=1 + number % 3)
            for number, prompt in enumerate(prompts)
        ]:
            answer.result()


def test_two_engines_one_killed_and_started_again(tmp_path: Path) -> None:
    with watched(tmp_path, "red", "blue") as (red, blue), sidecar(red, blue) as beside:
        listed = httpx.get(f"{beside.url}/targets").json()
        assert [entry["labels"]["__param_target"] for entry in listed] == ["red", "blue"]
        for server in (red, blue):
            load(server)
            assert_equal(server, beside)

        before = folded(beside.page("blue"))
        red.kill()
        wait_for(lambda: beside.value("red", "kvscope_source_up") == 0, "red is missed", seconds=15)
        assert beside.value("red", "kvscope_source_state_known") == 0
        assert beside.value("red", "kvscope_kv_blocks", state="active") is None
        assert beside.value("blue", "kvscope_source_state_known") == 1
        assert [line for line in before if "kvscope_kv_blocks" in line] == [
            line for line in folded(beside.page("blue")) if "kvscope_kv_blocks" in line
        ]
        assert_equal(blue, beside)

        red.start()
        wait_for(
            lambda: beside.value("red", "kvscope_source_state_known") == 1, "red is known again"
        )
        load(red, requests=4)
        assert_equal(red, beside)


def test_a_sidecar_that_was_stopped_catches_up(tmp_path: Path) -> None:
    with watched(tmp_path, "red") as (red,):
        other = Watched("none", f"ipc://{tmp_path}/none.sock")
        with sidecar(red, other) as beside:
            load(red, requests=4)
            assert_equal(red, beside)
            beside.process.send(signal.SIGSTOP)
            load(red)
            time.sleep(7)  # longer than an engine may be silent
            beside.process.send(signal.SIGCONT)
            wait_for(lambda: beside.value("red", "kvscope_source_state_known") == 1, "known again")
            assert_equal(red, beside)
            assert beside.value("red", "kvscope_event_batches_dropped_total") == 0
            assert beside.value("none", "kvscope_source_up") == 0
            assert "silent" not in beside.process.text
