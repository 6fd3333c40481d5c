"""Two servers, who follows both as a fleet, and Prometheus that scrapes them: all but Grafana."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.dashboards.fleet import Stage
from tests.fakes.nvml import build_library, compiler
from tests.support.process import FULL_PAGES, Process, forked_kvscope, started
from tests.support.prometheus import Prometheus, prometheus_with
from tests.support.waiting import wait_for

START_SECONDS = 120.0
_ADDRESS = r"metrics +http://([\d.:]+)/metrics"


@contextmanager
def _demo(folder: Path) -> Iterator[Process]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")}
    environment |= FULL_PAGES | {
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_NVML_STATE": str(folder / "nvml.state"),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.dashboards.stage", str(folder)]
    with started(command, environment) as process:
        try:
            yield process
        finally:
            process.send(signal.SIGTERM)  # the load is a child of its own, which it ends
            process.wait()


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Both servers, with families of every kind on their pages. Under load: not for long."""
    if compiler() is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler on PATH")
    build_library(folder)
    sizes = ("--max-model-len", "256", "--max-num-seqs", "4", "--no-gpu")
    # The board for vLLM asks old servers as well, and those that show how long blocks stay.
    old_names = ("--compat", "vllm,vllm-legacy,vllm-residency")
    with ExitStack() as parts:
        demo = parts.enter_context(_demo(folder))
        serve = ("engine", "serve", *sizes, *old_names, "--port", "0")
        idle = parts.enter_context(forked_kvscope(*serve)).find(
            r"metrics: http://([\d.:]+)/metrics"
        )
        busy = demo.find(_ADDRESS)
        both = [f"--sidecar=http://{address}" for address in (busy, idle)]
        following = parts.enter_context(forked_kvscope("fleet", *both, "--port", "0"))
        fleet = following.find(r"the fleet: http://([\d.:]+)")
        running = Stage(busy, idle, fleet, folder)
        settled = re.compile(r"^kvscope_preemptions_total{.*out_of_blocks.*} [1-9]", re.MULTILINE)
        wait_for(
            lambda: settled.search(running.pages()[0]) is not None, "a preemption", START_SECONDS
        )
        (folder / "oom").touch()
        yield running


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as running:
        yield running


_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{folder}/*.rules.yml"]
scrape_configs:
  - job_name: kvscope
    static_configs: [{{targets: ["{busy}", "{idle}"]}}]
  - job_name: kvscope-fleet
    static_configs: [{{targets: ["{fleet}"]}}]
"""


@pytest.fixture(scope="module")
def scraping(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes both every second, for half a minute so far."""
    folder = tmp_path_factory.mktemp("prometheus")
    configuration = _CONFIG.format(
        folder=stage.folder, busy=stage.busy, idle=stage.idle, fleet=stage.fleet
    )
    with prometheus_with(configuration, folder) as running:
        running.wait_for("count(count_over_time(up[1m]) > 30) == 3")
        yield running
