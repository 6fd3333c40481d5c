"""A RayService injected, with a worker's container as a node of Ray that gets a vLLM by Serve."""

import re
import tempfile
from pathlib import Path

import httpx
import pytest

from kvscope.inject.pod import OBSERVER, PORT, SIDECAR
from tests.inject.pods import added_to, environment, observed, server_of
from tests.inject.run import run
from tests.kubernetes.placed import placed
from tests.ray.cluster import cluster
from tests.ray.conversations import complete
from tests.ray.network import own_network
from tests.ray.test_vllms import SERVED, on_a_cpu
from tests.support.process import completed, kvscope
from tests.support.waiting import wait_for
from tests.vllm.server import BLOCK_SIZE

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.timeout(900)]
SERVICE = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: chat}
spec:
  rayClusterConfig:
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
          - {name: ray-head, image: "rayproject/ray-llm:2.60.0"}
    workerGroupSpecs:
    - groupName: gpu
      template:
        spec:
          containers:
          - name: ray-worker
            image: rayproject/ray-llm:2.60.0
            env:
            - {name: HF_HOME, value: /tmp}
"""


def test_a_vllm_that_ray_places_in_an_injected_worker_is_observed(ray_python: Path) -> None:
    """Its actor has the environment of the container in which `ray start` ran."""
    outcome = run(SERVICE, "--container=ray-worker", "--user=1000")
    (pod,) = observed(outcome.text)
    with own_network(), tempfile.TemporaryDirectory(prefix="ray-") as place:
        folder = Path(place)
        here = placed({"/kvscope": folder}, {PORT: PORT})
        done = completed(*here(added_to(pod, OBSERVER)["args"]))
        assert done.returncode == 0, done.stderr
        variables = environment(server_of(pod))
        node = {name: here([value])[0] for name, value in variables.items()}
        with (
            kvscope(*here(added_to(pod, SIDECAR)["args"])) as sidecar,
            cluster(ray_python, folder, node) as ray,
        ):
            config = on_a_cpu(folder)
            del config["callback_config"]
            config["deployment_config"] = {"num_replicas": 1}
            # The container's own variables are all that it has.
            for name in ("PYTHONPATH", "KVSCOPE_OBSERVER_DIR", "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"):
                del config["runtime_env"]["env_vars"][name]
            ray.deploy(SERVED, llm_configs=[config])
            for _ in range(4):
                assert complete([7] * 4 * BLOCK_SIZE, model="qwen").status_code == 200
            wait_for(
                lambda: sum(_samples("kvscope_prefix_cache_hit_tokens_total")) > 0,
                f"hits on the page of the sidecar\n{sidecar.text}",
            )
            assert _samples("kvscope_kv_ledger_imbalance_blocks") == [0.0]
            assert set(_samples("kvscope_source_up")) == {1.0}


def _samples(family: str) -> list[float]:
    """The values of all series of a family on the sidecar's page."""
    page = httpx.get(f"http://127.0.0.1:{PORT}/metrics", timeout=30).text
    return [float(text) for text in re.findall(rf"(?m)^{family}(?:\{{.*\}})? (\S+)$", page)]
