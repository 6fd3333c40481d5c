"""A vLLM's server under `kvscope run` and a load that its pool is too small for.

Its counters are held to those of vLLM's own page, its memory to NVML. The pages of both are kept
for `tools.pictures.screenshots`.
"""

import json
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

import httpx
import pynvml

from benchmarks.on_a_gpu.nvml import beside, components, total
from benchmarks.on_a_gpu.nvml import read as read_nvml
from benchmarks.on_a_gpu.pages import kept, read
from benchmarks.on_a_gpu.report import Figure, Parts
from benchmarks.on_a_gpu.vllm import NAME, Setting, wait_for_the_card
from tests.support.process import ROOT
from tests.vllm.counters import compared, disagreements
from tests.vllm.server import VllmServer, free_port, kvscope_command, started
from tests.vllm.versions import counted_otherwise

PAGES = "vllm-pages.jsonl.gz"
WINDOW = "vllm-window.json"
SETTLE_SECONDS = 6.0
"""Longer than the slowest source takes for a sample: processes, every five seconds."""
ANSWER_SECONDS = 120
"""For what is in flight when the load ends."""
OUTGROWN_TOKENS = 400
MILLISECOND = 1e-3


def measure(setting: Setting, out: Path) -> None:
    """Writes what is known so far to `out` after each part."""
    parts = Parts(out / "vllm-served.json")
    port, page_port = free_port(), free_port()
    url = f"http://127.0.0.1:{page_port}/metrics"
    wait_for_the_card()
    # Not below `out`, whose path may be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="kvscope-") as sockets:
        variables = setting.environment() | {"KVSCOPE_RUN_DIR": sockets}
        command = [*_observed(page_port, out), *_server(setting, port)]
        name, limit = "vllm-served-server", setting.start_seconds
        with started(command, variables, port, out, name, limit) as server:
            print("started", flush=True)
            with kept(out / PAGES, {"kvscope": url, "vllm": f"{server.url}/metrics"}):
                parts.measure("load", lambda: [load(setting, server, out)])
                parts.measure("counters", lambda: [counters(server, url, out)])
            parts.measure("memory", lambda: [memory(url, out)])
            parts.measure("reading", lambda: [reading(out)])
    parts.end()


def load(setting: Setting, server: VllmServer, out: Path) -> list[Figure]:
    """More conversations than the pool keeps, rising and falling; then all at once, if need be."""
    seconds = setting.load_seconds
    command = kvscope_command(
        *("load", "mix", server.url, "--model", NAME, "--ignore-eos"),
        *("--concurrency", str(setting.users), "--sessions", str(setting.users * 5 // 3)),
        *("--max-tokens", "192", "--duration", str(seconds), "--period", f"{seconds / 2.5:.0f}"),
        *("-o", "json"),
    )
    began = time.time()
    with (out / "vllm-load.log").open("w") as log, (out / "vllm-load.json").open("w") as report:
        limit = seconds + ANSWER_SECONDS
        code = subprocess.run(
            command, cwd=ROOT, stdout=report, stderr=log, timeout=limit, check=False
        ).returncode
    (out / WINDOW).write_text(json.dumps({"began": began, "ended": time.time()}))
    if not total(server.page(), "vllm:num_preemptions_total"):
        prompts = [f"{number} {'more and more ' * 8}" for number in range(setting.users)]
        server.complete(prompts, OUTGROWN_TOKENS, model=NAME)
    return [Figure("kvscope load on vLLM, exit code", code, "", 0)]


def counters(server: VllmServer, url: str, out: Path) -> list[Figure]:
    """At rest."""
    server.wait_idle()
    time.sleep(SETTLE_SECONDS)
    ours, theirs = httpx.get(url, timeout=30).text, server.page()
    (out / "vllm-served-page-kvscope.txt").write_text(ours)
    (out / "vllm-served-page-vllm.txt").write_text(theirs)
    version = httpx.get(f"{server.url}/version", timeout=30).json()["version"]
    otherwise = counted_otherwise(version)
    differing = disagreements(ours, theirs, without=otherwise)
    (out / "vllm-served-differences.json").write_text(json.dumps(differing, indent=1))
    print(*differing, sep="\n", flush=True)
    evicted = total(ours, "kvscope_kv_block_evictions_total")
    preempted = total(theirs, "vllm:num_preemptions_total")
    imbalance = total(ours, "kvscope_kv_ledger_imbalance_blocks")
    return [
        Figure(
            f"of {compared(ours)} counters, unlike those of vLLM {version}, the {len(otherwise)} "
            "families apart that it counts otherwise",
            *(len(differing), "", 0),
        ),
        Figure("blocks by which the ledger of vLLM's pool is out of balance", imbalance, "", 0),
        Figure("vLLM's preemptions meanwhile", preempted, "", 1, "higher"),
        Figure("vLLM's evicted blocks meanwhile", evicted, "", 1, "higher"),
        Figure("batches of events lost", total(ours, "kvscope_event_batches_dropped_total"), "", 0),
    ]


def memory(url: str, out: Path) -> list[Figure]:
    """At rest, at one moment: nothing moves between the two readings."""
    page = httpx.get(url, timeout=30).text
    said: dict[str, object] = {"page": components(page)}
    found = []
    with suppress(pynvml.NVMLError):  # a rehearsal
        nvml = read_nvml()
        said["nvml"] = nvml._asdict()
        found = beside(page, nvml)
    (out / "vllm-served-memory.json").write_text(json.dumps(said, indent=1))
    return [figure._replace(name=f"vLLM's server: {figure.name}") for figure in found]


def reading(out: Path) -> list[Figure]:
    """Time that each of the kept pages took."""
    seconds = [page.seconds for page in read(out / PAGES) if page.job == "kvscope"]
    p99 = quantiles(seconds, n=100)[-1]
    return [
        Figure("kvscope's page under that load, median", median(seconds) / MILLISECOND, "ms"),
        Figure("kvscope's page under that load, p99", p99 / MILLISECOND, "ms"),
    ]


def _observed(port: int, out: Path) -> list[str]:
    return kvscope_command(
        *("run", "--port", str(port), "--compat", "vllm"),
        *("--record-dir", str(out / "vllm-recording"), "--keep-bytes", "24MiB", "--"),
    )


def _server(setting: Setting, port: int) -> list[str]:
    return [
        *(str(setting.python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(setting.model), "--served-model-name", NAME),
        *("--host", "127.0.0.1", "--port", str(port), *setting.server),
    ]
