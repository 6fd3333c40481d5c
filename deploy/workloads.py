"""Example workloads: a vLLM or SGLang with a sidecar, and our own engine with its demo load."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.monitoring import LABELS, NAME_LABEL, POD_LABELS, SERVICE_PORT
from kvscope.inject.pod import (
    UNPRIVILEGED,
    Watch,
    observer,
    server_mounts,
    sidecar,
    variables,
    volumes,
)
from kvscope_events import __version__
from kvscope_events.vocabulary import ServerKind

ENGINE_IMAGE = f"kvscope:{__version__}"
VLLM_IMAGE, SGLANG_IMAGE = "vllm/vllm-openai:v0.32.0", "lmsysorg/sglang:v0.5.23"
MODEL = "Qwen/Qwen3-0.6B"
_VLLM_PORT = _ENGINE_PORT = 8000
_SGLANG_PORT = 30000
_SERVER_START, _ENGINE_START = 30, 5
"""Minutes until an engine has loaded its model."""
USER = 10001
"""The user of all three containers, since sockets are private to the user who made them. The user
is not known to the server's image, so caches and the home directory are in the model volume.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server that is observed, as its project publishes it."""

    name: ServerKind
    image: str
    command: list[str]
    args: list[str]
    port: int
    variables: Mapping[str, str]


_VLLM = _Server(
    name="vllm",
    image=VLLM_IMAGE,
    command=["vllm", "serve"],
    args=[MODEL, "--host=0.0.0.0", f"--port={_VLLM_PORT}"],
    port=_VLLM_PORT,
    variables={},
)
_SGLANG = _Server(
    name="sglang",
    image=SGLANG_IMAGE,
    command=["python3", "-m", "sglang.launch_server"],
    args=[
        *(f"--model-path={MODEL}", "--host=0.0.0.0", f"--port={_SGLANG_PORT}"),
        *("--page-size=16", "--enable-metrics"),  # pages with names, and a page of its own
    ],
    port=_SGLANG_PORT,
    # Otherwise each probe of an idle server is a request that generates a token.
    variables={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"},
)


def labelled(name: str) -> dict[str, str]:
    """Labels of the objects of one workload."""
    return {NAME_LABEL: name}


def vllm() -> dict[str, dict[str, object]]:
    """Objects by file name: a vLLM on one GPU, and the sidecar that serves its metrics."""
    return _observed(_VLLM)


def sglang() -> dict[str, dict[str, object]]:
    """The same for an SGLang."""
    return _observed(_SGLANG)


def _observed(server: _Server) -> dict[str, dict[str, object]]:
    labels = {NAME_LABEL: server.name}
    watch = Watch(server=server.name, url=f"http://127.0.0.1:{server.port}")
    pod = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 120,
        "initContainers": [observer(watch), sidecar(watch)],
        "containers": [_container(server)],
        "volumes": [
            *volumes(watch),
            {"name": "models", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ],
    }
    return {
        "deployment.yaml": _deployment(
            server.name, labels, pod, {**labels, **POD_LABELS}, start_minutes=_SERVER_START
        ),
        "service.yaml": _service(server.name, labels, labels, server.port),
    }


def engine() -> dict[str, dict[str, object]]:
    """Objects by file name: the engine with its demo load, which needs neither GPU nor download."""
    labels = {NAME_LABEL: "kvscope-engine"}
    container = {
        "name": "engine",
        "image": ENGINE_IMAGE,
        "args": ["demo", "--host=0.0.0.0"],
        "ports": [{"name": SERVICE_PORT, "containerPort": _ENGINE_PORT}],
        **_probes(start_minutes=_ENGINE_START),
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            **UNPRIVILEGED,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    return {
        "deployment.yaml": _deployment(
            "kvscope-engine", labels, pod, labels, start_minutes=_ENGINE_START
        ),
        "service.yaml": _service("kvscope-engine", LABELS, labels, _ENGINE_PORT),
    }


def _container(server: _Server) -> dict[str, object]:
    token = {"name": "hf-token", "key": "token", "optional": True}
    return {
        "name": server.name,
        "image": server.image,
        "command": server.command,
        "args": server.args,
        "env": [
            *variables(),
            {"name": "HF_HOME", "value": "/models"},
            # A user that the image does not know has no home and no name.
            {"name": "HOME", "value": "/models"},
            {"name": "USER", "value": server.name},
            *({"name": name, "value": value} for name, value in server.variables.items()),
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}},
        ],
        "ports": [{"name": SERVICE_PORT, "containerPort": server.port}],
        **_probes(start_minutes=_SERVER_START),
        "resources": {
            "requests": {"cpu": "4", "memory": "16Gi"},
            "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"},
        },
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [
            *server_mounts(),
            {"name": "models", "mountPath": "/models"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _probes(start_minutes: int) -> dict[str, object]:
    """A model that takes minutes to load is not dead; one that has been up answers within
    seconds."""
    health = {"httpGet": {"path": "/health", "port": SERVICE_PORT}}
    return {
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": start_minutes * 6},
        "readinessProbe": {**health, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {
            **health,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
    }


def _deployment(
    name: str,
    labels: Mapping[str, str],
    pod: Mapping[str, object],
    pod_labels: Mapping[str, str],
    start_minutes: int,
) -> dict[str, object]:
    """A roll-out needs no second GPU, and fails only when a start does; by default Kubernetes
    reports failure after ten minutes, when a model may still be loading. Service links are off,
    since those of a Service named vllm would set VLLM_PORT, which vLLM reads."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "replicas": 1,
            "progressDeadlineSeconds": (start_minutes + 10) * 60,
            "selector": {"matchLabels": dict(labels)},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": dict(pod_labels)},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **pod,
                },
            },
        },
    }


def _service(
    name: str, labels: Mapping[str, str], selector: Mapping[str, str], port: int
) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "selector": dict(selector),
            "ports": [{"name": SERVICE_PORT, "port": port, "targetPort": SERVICE_PORT}],
        },
    }
