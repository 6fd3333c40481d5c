"""The component that follows all pods with a sidecar as a fleet, and how it finds them."""

from deploy.monitoring import POD_LABELS, POD_PORT, fleet_monitor
from deploy.workloads import USER, labelled
from kvscope.inject.pod import EXPORTER_IMAGE, PORT, UNPRIVILEGED
from kvscope_alerts.thresholds import FLEET_JOB

NAME, SIDECARS = FLEET_JOB, "kvscope-sidecars"
_LABELS = labelled(NAME)
_PORT = 8011


def fleet(release: str) -> dict[str, dict[str, object]]:
    """Objects by file name."""
    return {
        "deployment.yaml": _deployment(),
        "service.yaml": _service(NAME, {"ports": [_port("http", _PORT)], "selector": _LABELS}),
        "sidecars.yaml": _service(
            SIDECARS,
            {
                # An address for each pod; also of those that are not ready, whose caches count.
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "ports": [{"name": POD_PORT, "port": PORT, "targetPort": PORT}],
                "selector": POD_LABELS,
            },
        ),
        "servicemonitor.yaml": fleet_monitor(release, _LABELS),
    }


def _deployment() -> dict[str, object]:
    container = {
        "name": "fleet",
        "image": EXPORTER_IMAGE,
        "args": [
            "fleet",
            "--host=0.0.0.0",
            f"--port={_PORT}",
            f"--sidecars-at={SIDECARS}:{PORT}",
        ],
        "ports": [{"name": "http", "containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            **UNPRIVILEGED,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _service(name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "labels": labelled(name)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _port(name: str, port: int) -> dict[str, object]:
    return {"name": name, "port": port, "targetPort": name}
