"""The containers of an injected manifest's pods, as processes around a real vLLM.

A pod's vLLM is started by its container's own words and variables, as the controller of the
object's kind completes them.
"""

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kvscope.inject.pod import OBSERVER, PORT, SIDECAR
from tests.inject.pods import added_to, environment, observed, server_of
from tests.inject.run import loaded
from tests.kubernetes.placed import placed
from tests.support.operated import START_SECONDS, begun
from tests.support.process import Process, completed, forked_kvscope, started
from tests.vllm.image import Image
from tests.vllm.server import VllmServer, free_port

KSERVE_MODELS = str(Path("/mnt", "models"))
_RUNTIME = (
    *("python", "-m", "vllm.entrypoints.openai.api_server"),
    *("--port=8080", f"--model={KSERVE_MODELS}"),
)
"""A ServingRuntime's command, for an InferenceService with a `model`."""
_CONFIGURED = (
    *("/bin/bash", "-c"),
    f'eval "exec vllm serve {KSERVE_MODELS} --port 8000 ${{VLLM_ADDITIONAL_ARGS}} $@"',
    "--",
)
"""A configuration's command, for an LLMInferenceService without one."""


@dataclass(frozen=True)
class Running:
    """A pod's processes."""

    server: VllmServer
    sidecar: Process | None
    """None: its image cannot be pulled."""
    url: str
    """Base URL of the sidecar."""

    def samples(self, family: str) -> list[float]:
        """The values of all series of a family on the sidecar's page."""
        page = httpx.get(f"{self.url}/metrics", timeout=10).text
        lines = re.findall(rf"(?m)^{family}(?:\{{.*\}})? (\S+)$", page)
        return [float(text) for text in lines]


@contextmanager
def running(
    text: str, image: Image, folder: Path, *options: str, unpulled: Collection[int] = ()
) -> Iterator[list[Running]]:
    """The observed pods of a stream of manifests, once all of them serve.

    folder: short, since sockets lie below it; options: of every vLLM, besides; unpulled: pods that
    cannot pull the image of observer and sidecar. The pods are numbered as those of a
    LeaderWorkerSet's group, the leader first.
    """
    found = [(one, pod) for one in loaded(text) for pod in observed(one)]
    with ExitStack() as stack:
        pods = []
        for number, (content, pod) in enumerate(found):
            place = folder / str(number)
            place.mkdir()
            group = {
                "LWS_LEADER_ADDRESS": "127.0.0.1",
                "LWS_GROUP_SIZE": str(len(found)),
                "LWS_WORKER_INDEX": str(number),
            }
            begin = _begun(content, pod, image, place, group, options, number not in unpulled)
            pods.append(stack.enter_context(begin))
        for pod in pods:
            pod.server.wait_ready(2 * START_SECONDS)
        yield pods


@contextmanager
def _begun(
    content: Any,
    pod: Any,
    image: Image,
    folder: Path,
    group: Mapping[str, str],
    options: Sequence[str],
    is_pulled: bool,
) -> Iterator[Running]:
    port, page_port = free_port(), free_port()
    server, sidecar = server_of(pod), added_to(pod, SIDECAR)["args"]
    named = re.findall(r"--url=vllm=http://[\d.]+:(\d+)", " ".join(sidecar))
    volumes = {"/kvscope": folder, KSERVE_MODELS: image.model}
    here = placed(volumes, {PORT: page_port} | {int(each): port for each in named})
    mounts = {one["name"]: one["mountPath"] for one in server["volumeMounts"]}
    Path(*here([mounts[OBSERVER]])).mkdir(parents=True)
    waits = [one["name"] for one in pod.get("initContainers") or ()]
    if OBSERVER in waits:
        assert is_pulled, "the kubelet would not start the server"
        done = completed(*here(added_to(pod, OBSERVER)["args"]))
        assert done.returncode == 0, done.stderr
    variables = image.unpack(folder, port, options) | group
    variables["KUBERAY_GEN_RAY_START_CMD"] = "ray start --head"
    for name, value in environment(server).items():
        variables[name] = here([_expanded(value, variables)])[0]
    command = here([_expanded(word, variables) for word in _words(content, server)])
    is_headless = "--headless" in " ".join(command) and group["LWS_WORKER_INDEX"] != "0"
    # Without an API server, its sidecar answers in its place.
    answering = page_port if is_headless else port
    url = f"http://127.0.0.1:{page_port}"
    with ExitStack() as stack:
        watching = stack.enter_context(forked_kvscope(*here(sidecar))) if SIDECAR in waits else None
        start = begun(VllmServer, command, variables, answering, folder, "vllm")
        vllm = stack.enter_context(start)
        for name in (OBSERVER, SIDECAR):
            if name not in waits and is_pulled:
                container = added_to(pod, name)
                words = [*container.get("command", ["kvscope"]), *here(container["args"])]
                watching = stack.enter_context(ended(words))
        yield Running(vllm, watching, url)


@contextmanager
def ended(words: Sequence[str]) -> Iterator[Process]:
    """A container of ours that is ended as a kubelet does."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with started([*words], {**os.environ, "PATH": path}) as process:
        try:
            yield process
        finally:  # what the shell has started ends with it
            process.popen.terminate()
            status = process.popen.wait(30)
        assert status == 0, process.text


def _words(content: Any, server: Any) -> list[str]:
    """The server's command and arguments as the cluster completes them for this object."""
    command: list[str] = server.get("command") or []
    arguments: list[str] = server.get("args") or []
    if content["kind"].startswith("Ray"):
        annotations = content["metadata"].get("annotations") or {}
        if annotations.get("ray.io/overwrite-container-cmd") != "true":
            return ["/bin/bash", "-lc", "--", " ".join([*command, *arguments, "&&", "ray start"])]
    elif not command and content["kind"] == "LLMInferenceService":
        command = [*_CONFIGURED]
    elif not command and "modelFormat" in server:
        command = [*_RUNTIME]
    elif not command:
        command = ["vllm", "serve"]  # the image's entry point
    return [*command, *arguments]


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)`, which stays as it is where that is not known."""
    return re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), text)
