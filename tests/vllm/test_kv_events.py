"""KV events that a vLLM's own publisher sends, read as a sidecar reads them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.kv_events.watching import watched
from tests.support.process import SOURCES
from tests.support.waiting import wait_for

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly),
    *(pytest.mark.slow, pytest.mark.timeout(900)),
]


def test_what_a_vllm_publishes_is_read_from_its_replay_and_as_it_comes(
    vllm_python: Path, tmp_path: Path
) -> None:
    places = [f"ipc://{tmp_path}/{name}" for name in ("events", "replay")]
    publisher = subprocess.Popen(
        [vllm_python, "-m", "tests.vllm.publish_kv_events", *places],
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    try:
        assert "published\n" in publisher.stdout, "it ended before"
        with watched(tmp_path) as there:
            there.expect(3)
            assert there.blocks("host") == 1
            for name, count in (("stored", 4), ("removed", 1), ("returned", 1)):
                shown = there.shown(f"kvscope_kv_tier_{name}_blocks_total", tier="device")
                assert shown == count, name
            publisher.stdin.write("clear\n")
            publisher.stdin.flush()
            there.expect(0)
            wait_for(lambda: there.blocks("device") == 0)
            assert not any(there.source.decode_errors.values())
            assert (there.source.gaps, there.source.batches_dropped) == (0, 0)
    finally:
        publisher.stdin.close()
        publisher.wait(30)
        publisher.stdout.close()
