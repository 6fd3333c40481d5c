"""`kvscope demo`: usage that rises and falls, hits, evictions and preemptions, by itself."""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.repo.checkout import ROOT
from tests.support.process import forked_kvscope, kvscope

pytestmark = pytest.mark.waits

PATIENCE_SECONDS = 120.0
"""The workload swings every 20 s; a machine that others use as well is slower to follow."""


def scrape(url: str) -> dict[str, float]:
    """Sums by name."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=5).text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def rose_and_fell(usages: list[float]) -> bool:
    """From below half to nearly full, and a fifth of the pool down again."""
    peak = usages.index(max(usages))
    return (
        usages[peak] > 0.9
        and min(usages[:peak], default=1) < 0.5
        and (min(usages[peak:]) < usages[peak] - 0.2)
    )


@pytest.mark.nightly
@pytest.mark.slow
def test_demo_shows_pressure_that_comes_and_goes() -> None:
    with kvscope("demo", "--port", "0") as process:
        url = process.find(r"metrics +(\S+)/metrics")
        usages: list[float] = []
        last: dict[str, float] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (len(usages) > 10 and rose_and_fell(usages)):
            assert time.monotonic() < deadline, f"usage did not rise and fall: {usages}"
            last = scrape(url)
            usages.append(last.get("kvscope_kv_active_ratio", 0.0))
            time.sleep(0.3)
        (engine,) = httpx.get(f"{url}/api/advice", timeout=5).json()["engines"]
        process.send(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert engine["answer"]["declined"], "what is not proposed says why"
    assert last["kvscope_prefix_cache_hit_tokens_total"] > 0
    assert last["kvscope_kv_block_evictions_total"] > 0
    assert last["kvscope_preemptions_total"] > 0
    assert last["kvscope_kv_ledger_imbalance_blocks"] == 0
    assert f"{url}/v1/completions" in process.text
    assert "preempted" in process.text
    assert "Traceback" not in process.text


@pytest.mark.nightly
def test_demo_ends_by_itself() -> None:
    with forked_kvscope("demo", "--port", "0", "--duration", "2") as process:
        assert process.wait(PATIENCE_SECONDS) == 0
    assert "Traceback" not in process.text


@pytest.mark.nightly
def test_a_file_named_like_our_package_does_not_end_the_demos_load(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("raise SystemExit(7)")
    command = [sys.executable, "-P", "-m", "kvscope", "demo", "--port", "0", "--duration", "3"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "the load generator exited early" not in done.stderr


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("consumer", "code", "said"), [("/dev/full", 2, 1), ("true", 1, 0)])
def test_a_demo_that_nobody_can_watch_ends(consumer: str, code: int, said: int) -> None:
    demo = f"{shlex.quote(sys.executable)} -P -m kvscope demo --port 0"
    where = f"> {consumer}" if consumer.startswith("/") else f"| {consumer}"
    done = subprocess.run(
        ["bash", "-c", f"{demo} {where}; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.count("kvscope: standard output: No space left on device") == said
