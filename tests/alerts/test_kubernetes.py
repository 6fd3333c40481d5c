"""Kubernetes files: written from the same rules and dashboards, for the same job and interval."""

import json
from typing import Any

import pytest
import yaml

from alerts.rules import mapping
from alerts.thresholds import JOB
from deploy.manifests import SCRAPE_INTERVAL, SCRAPE_TIMEOUT, manifests
from tests.repo.checkout import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
DASHBOARDS = ROOT / "dashboards"
FILES = manifests(DASHBOARDS)
CONFIG_MAP_BYTES = 1_000_000
"""Kubernetes takes a little more than a megabyte."""


def test_the_committed_files_are_what_the_generator_writes() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    assert committed == FILES, "run `python -m deploy`"


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_one_object(name: str) -> None:
    content: Any = yaml.safe_load(FILES[name])
    assert content["apiVersion"]
    assert content["kind"] in ("ServiceMonitor", "PrometheusRule", "ConfigMap")
    assert content["metadata"]["name"] == content["metadata"]["name"].lower()


def test_the_rules_are_those_of_the_rule_file() -> None:
    assert yaml.safe_load(FILES["prometheusrule.yaml"])["spec"] == mapping()


def test_the_monitor_scrapes_as_the_stack_does() -> None:
    config: Any = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert config["global"]["scrape_interval"] == SCRAPE_INTERVAL
    assert config["global"]["scrape_timeout"] == SCRAPE_TIMEOUT
    (endpoint,) = yaml.safe_load(FILES["servicemonitor.yaml"])["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": JOB}]


def test_every_dashboard_is_in_a_config_map_unchanged() -> None:
    maps: Any = [yaml.safe_load(t) for name, t in FILES.items() if name.startswith("dashboard-")]
    data = {name: text for content in maps for name, text in content["data"].items()}
    assert data == {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}
    for content in maps:
        assert content["metadata"]["labels"]["grafana_dashboard"] == "1"
        for text in content["data"].values():
            assert len(text) < CONFIG_MAP_BYTES
            assert json.loads(text)["uid"]
