"""Objects for the Prometheus operator, and the kustomization for Grafana's sidecar."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvscope.inject.pod import LABEL, OBSERVED, PORT, PORT_NAME
from kvscope_alerts.edits import Edits
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rule import Places
from kvscope_alerts.rules import groups as rule_groups
from kvscope_alerts.thresholds import FLEET_JOB, JOB
from kvscope_alerts.timing import Timing

RELEASE = "kube-prometheus-stack"
"""kube-prometheus-stack's Prometheus reads only objects labelled with the name of its release."""
SCRAPE_INTERVAL, SCRAPE_TIMEOUT = "15s", "10s"
"""The interval of deploy/prometheus/prometheus.yml; a test compares the two."""
NAME_LABEL, NAME = "app.kubernetes.io/name", "kvscope"
LABELS = {NAME_LABEL: NAME}
POD_LABELS = {LABEL: OBSERVED}
"""Label of pods with a sidecar, which the PodMonitor selects."""
OTHER_PORTS = f"{NAME}-other-ports"
POD_PORT, SERVICE_PORT = PORT_NAME, "http"
"""Names of the ports that the two monitors scrape."""


def monitoring(
    places: Places,
    objectives: Objectives | None,
    release: str,
    edits: Edits | None = None,
) -> dict[str, dict[str, object]]:
    """Objects by file name."""
    groups = [
        group.mapping(Timing(), places) for group in rule_groups(objectives=objectives, edits=edits)
    ]
    return {
        "podmonitor.yaml": _pod_monitor(release),
        "servicemonitor.yaml": _service_monitor(release),
        "prometheusrule.yaml": prometheus_rule(release, groups),
    }


def dashboards(folder: Path) -> dict[str, object]:
    """The kustomization of the folder with the boards' JSON: a ConfigMap for each, because one
    cannot hold them all. The label makes Grafana's sidecar load them."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "generatorOptions": {
            "disableNameSuffixHash": True,  # or the chart's ConfigMaps would have different names
            "labels": {**LABELS, "grafana_dashboard": "1"},
            "annotations": {"grafana_folder": "kvscope"},
        },
        "configMapGenerator": [
            {"name": f"{path.stem}-dashboard", "files": [path.name]}
            for path in sorted(folder.glob("*.json"))
        ],
    }


def prometheus_rule(
    release: str, groups: Sequence[Mapping[str, object]], name: str = NAME
) -> dict[str, object]:
    """The rules as an object of the operator."""
    return _object("PrometheusRule", release, {"groups": [*groups]}, name)


def _pod_monitor(release: str) -> dict[str, object]:
    """For sidecars: `instance` is namespace and pod, which is more telling than an address."""
    spec = {
        "selector": {"matchLabels": POD_LABELS},
        "podMetricsEndpoints": [_endpoint(POD_PORT)],
    }
    return _object("PodMonitor", release, spec)


def _service_monitor(release: str) -> dict[str, object]:
    """For engines that serve their page themselves, behind a Service."""
    spec = {"selector": {"matchLabels": LABELS}, "endpoints": [_endpoint(SERVICE_PORT)]}
    return _object("ServiceMonitor", release, spec)


def fleet_monitor(release: str, labels: Mapping[str, str]) -> dict[str, object]:
    """For `kvscope fleet`. labels: of its Service."""
    spec = {
        "selector": {"matchLabels": dict(labels)},
        "endpoints": [_endpoint(SERVICE_PORT, FLEET_JOB)],
    }
    return _object("ServiceMonitor", release, spec, FLEET_JOB)


def _endpoint(port: str, job: str = JOB) -> dict[str, object]:
    """Endpoint of both monitors. The operator's own label `endpoint` would hide our page's."""
    return {
        "port": port,
        "path": "/metrics",
        "interval": SCRAPE_INTERVAL,
        "scrapeTimeout": SCRAPE_TIMEOUT,
        "relabelings": [
            {"targetLabel": "job", "replacement": job},
            {
                "sourceLabels": ["__meta_kubernetes_namespace", "__meta_kubernetes_pod_name"],
                "separator": "/",
                "targetLabel": "instance",
            },
            {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
            {"sourceLabels": ["__meta_kubernetes_pod_label_llm_d_ai_role"], "targetLabel": "role"},
            {"action": "labeldrop", "regex": "endpoint"},
        ],
    }


def network_policy(namespace: str, others: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """Opens the sidecars' port to Prometheus' namespace, and to pods with one of the other labels
    in the policy's own; nothing else."""
    place = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    pods = [{"podSelector": {"matchLabels": dict(labels)}} for labels in others]
    ports = [{"protocol": "TCP", "port": PORT}]
    return _policy(NAME, {"from": [place, *pods], "ports": ports})


def other_ports() -> dict[str, object]:
    """Opens the other ports of observed pods to everyone, since a pod that a policy selects is
    closed to what no policy names. For namespaces without policies of their own."""
    ports = [
        {"protocol": "TCP", "port": 1, "endPort": PORT - 1},
        {"protocol": "TCP", "port": PORT + 1, "endPort": 65535},
        {"protocol": "UDP", "port": 1, "endPort": 65535},
    ]
    return _policy(OTHER_PORTS, {"ports": ports})


def _policy(name: str, rule: Mapping[str, object]) -> dict[str, object]:
    """A policy for the pods with a sidecar, in the namespace where it is made."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "podSelector": {"matchLabels": POD_LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [dict(rule)],
        },
    }


def _object(
    kind: str, release: str, spec: Mapping[str, object], name: str = NAME
) -> dict[str, object]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {**LABELS, "release": release}},
        "spec": dict(spec),
    }
