"""Ray Serve LLM with two observed vLLMs, and a sidecar on their node that knew neither before."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kvscope.run.plugin_folder import write_plugin_folder
from tests.ray.cluster import Cluster
from tests.ray.conversations import Answered, complete, converse
from tests.support.pages import sample
from tests.support.process import ROOT, Process, kvscope
from tests.support.waiting import wait_for
from tests.vllm.model import tiny_model
from tests.vllm.server import BLOCK_SIZE, server_environment

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.timeout(900)]
SERVED = ROOT / "deploy" / "ray" / "vllm.yaml"
SLOTS = 3
REPLACED_SECONDS = 240.0
QUESTIONS = 20
SMALL = {
    "enforce_eager": True,
    "dtype": "float32",
    "block_size": BLOCK_SIZE,
    "max_model_len": 1024,
    "max_num_seqs": 8,
    "num_gpu_blocks_override": 480,
    "enable_prompt_tokens_details": True,
}
ON_A_CPU = (
    *("VLLM_TARGET_DEVICE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND"),
    *("OMP_NUM_THREADS", "VLLM_HOST_IP", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_OFFLINE"),
)


@pytest.fixture(scope="module")
def folder(ray: Cluster) -> Path:
    """Short: sockets lie below it."""
    return ray.folder.parent


@pytest.fixture(scope="module")
def sidecar(folder: Path) -> Iterator[Process]:
    """Started before the servers."""
    events = [("--events", f"vllm-{n}=ipc://{folder}/s/{n}/*") for n in range(SLOTS)]
    options = [part for pair in events for part in pair]
    with kvscope("sidecar", "--port", "0", "--fleet", *options) as process:
        yield process


@pytest.fixture(scope="module")
def answered(ray: Cluster, folder: Path, sidecar: Process) -> Answered:
    """The conversations behind Ray's own router."""
    ray.deploy(SERVED, llm_configs=[on_a_cpu(folder)])
    ask_both(first=100)
    wait_for(lambda: counted(sidecar) == {"vllm-0", "vllm-1"}, "both are counted")
    return converse(model="qwen")


def on_a_cpu(folder: Path) -> dict[str, Any]:
    """The LLMConfig of the file, for a tiny model and without an accelerator."""
    plugin = folder / "plugin"
    write_plugin_folder(plugin)
    config = yaml.safe_load(SERVED.read_text())["applications"][0]["args"]["llm_configs"][0]
    del config["accelerator_type"]
    config["accelerator_config"] = {"kind": "cpu"}
    model = tiny_model(folder / "model", "llama")
    config["model_loading_config"]["model_source"] = str(model)
    config["engine_kwargs"] = SMALL
    scaling = {"min_replicas": 2, "max_replicas": 2}
    config["deployment_config"] = {"autoscaling_config": scaling, "health_check_period_s": 2}
    environment = server_environment()
    config["runtime_env"]["env_vars"] |= {
        **{name: environment[name] for name in ON_A_CPU},
        "PYTHONPATH": str(plugin),
        "KVSCOPE_OBSERVER_DIR": str(folder / "s"),
    }
    return dict(config)


def ask(sidecar: Process, path: str, **query: str) -> httpx.Response:
    url = sidecar.find(r"(http://[\d.]+:\d+)")
    return httpx.get(f"{url}{path}", params=query, timeout=30)


def page(sidecar: Process, slot: int) -> str:
    return ask(sidecar, "/scrape", target=f"vllm-{slot}").text


def total(sidecar: Process, name: str, **labels: str) -> float:
    """Over all slots."""
    pages = (page(sidecar, slot) for slot in range(SLOTS))
    return sum(sample(text, name, engine="0", **labels) or 0.0 for text in pages)


def counted(sidecar: Process) -> set[str]:
    """Servers that the fleet's page counts."""
    replicas = ask(sidecar, "/api/fleet").json()["replicas"]
    return {replica["server"] for replica in replicas if replica["state"] == "counted"}


def ask_both(first: int) -> None:
    """Prompts that nothing begins like, enough of them for each replica to get some: a vLLM's names
    are comparable once it has named a block."""
    for number in range(first, first + QUESTIONS):
        assert complete([number] * 2 * BLOCK_SIZE, model="qwen").status_code == 200


def engine_core(pid: int) -> int:
    """The scheduler's process of a replica."""
    (found,) = (
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if "EngineCor" in Path(f"/proc/{child}/comm").read_text()
    )
    return found


def test_each_replica_has_a_page_and_they_say_what_clients_were_told(
    answered: Answered, sidecar: Process
) -> None:
    found = "kvscope_prefix_cache_hit_tokens_total"
    wait_for(
        lambda: total(sidecar, found, phase="first") == answered.cached_tokens > 0,
        "all hits are on the pages",
    )
    for slot in range(2):
        text = page(sidecar, slot)
        assert sample(text, found, engine="0", phase="first"), "both had work"
        assert sample(text, "kvscope_kv_ledger_imbalance_blocks", engine="0") == 0


def test_the_fleet_says_what_rays_router_loses(answered: Answered, sidecar: Process) -> None:
    def own_and_best() -> tuple[int, int]:
        (space,) = ask(sidecar, "/api/fleet").json()["spaces"]
        return space["own_blocks"], space["best_blocks"]

    wait_for(
        lambda: own_and_best()[0] * BLOCK_SIZE == answered.cached_tokens, "all hits are folded"
    )
    own, best = own_and_best()
    assert best > 1.1 * own


def test_a_killed_replica_is_replaced(ray: Cluster, answered: Answered, sidecar: Process) -> None:
    name = next(each for each in ray.application["deployments"] if each.startswith("LLMServer"))
    before = ray.replicas(name)
    victim, pid = next(iter(before.items()))
    core = engine_core(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{core}").exists(), "its engine core ends with it")
    wait_for(
        lambda: len(ray.replicas(name)) == 2 and victim not in ray.replicas(name),
        "another one takes its place",
        REPLACED_SECONDS,
    )
    (replacement,) = ray.replicas(name).keys() - before.keys()
    assert engine_core(ray.replicas(name)[replacement]) != core
    ask_both(first=200)
    wait_for(lambda: len(counted(sidecar)) == 2, "the new one is observed and counted")
    assert len(ray.replicas(name).items() & before.items()) == 1, "the other one stays as it was"
