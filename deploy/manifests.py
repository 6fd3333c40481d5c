"""Manifests for the Prometheus operator and Grafana's sidecar, from our rules and dashboards."""

import json
from pathlib import Path

from alerts.objectives import Objectives
from alerts.rule import Places
from alerts.rules import mapping
from alerts.thresholds import JOB
from alerts.yaml_text import to_yaml

FOLDER = Path(__file__).parent / "kubernetes"
HEADER = """\
Written by `python -m deploy`: change alerts/ or dashboards/. For `kubectl apply
--server-side` (dashboards are too long for the annotation of a client-side apply)."""
SCRAPE_INTERVAL, SCRAPE_TIMEOUT = "5s", "4s"
"""The interval of deploy/prometheus/prometheus.yml; a test compares the two."""
_LABELS = {"app.kubernetes.io/name": "kvscope"}


def manifests(
    dashboards: Path, places: Places | None = None, objectives: Objectives | None = None
) -> dict[str, str]:
    """Text by file name. dashboards: the folder with their JSON."""
    files = {
        "servicemonitor.yaml": to_yaml(_service_monitor(), HEADER),
        "prometheusrule.yaml": to_yaml(_prometheus_rule(places, objectives), HEADER),
    }
    for path in sorted(dashboards.glob("*.json")):
        files[f"dashboard-{path.stem}.yaml"] = to_yaml(_config_map(path), HEADER)
    return files


def _service_monitor() -> dict[str, object]:
    """Names the job as the rules expect, whatever the name of the Service."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "kvscope", "labels": _LABELS},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "endpoints": [
                {
                    "port": "http",
                    "path": "/metrics",
                    "interval": SCRAPE_INTERVAL,
                    "scrapeTimeout": SCRAPE_TIMEOUT,
                    "relabelings": [{"targetLabel": "job", "replacement": JOB}],
                }
            ],
        },
    }


def _prometheus_rule(places: Places | None, objectives: Objectives | None) -> dict[str, object]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "kvscope", "labels": _LABELS},
        "spec": mapping(places=places, objectives=objectives),
    }


def _config_map(path: Path) -> dict[str, object]:
    """The label makes Grafana's sidecar load the dashboard."""
    text = path.read_text()
    uid = json.loads(text)["uid"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{uid}-dashboard",
            "labels": {**_LABELS, "grafana_dashboard": "1"},
            "annotations": {"grafana_folder": "kvscope"},
        },
        "data": {path.name: text},
    }
