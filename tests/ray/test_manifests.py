"""The files for Serve and KubeRay agree with the application's arguments, without Ray."""

import ast
import copy
from typing import Any

import pytest
import yaml

from exporter.configuration import read_configuration
from tests.kubernetes.schemas import API_VERSIONS, pod_problems, problems
from tests.support.process import ROOT

FOLDER = ROOT / "deploy" / "ray"


def applications() -> list[dict[str, Any]]:
    """The one of each file."""
    service, _, _ = yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text())
    served = yaml.safe_load((FOLDER / "serve.yaml").read_text())
    configured = yaml.safe_load(service["spec"]["serveConfigV2"])
    return [*served["applications"], *configured["applications"]]


def settings() -> set[str]:
    """The fields of Settings, read without importing Ray."""
    (found,) = (
        node
        for node in ast.parse((FOLDER / "app.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    return {ast.unparse(each.target) for each in found.body if isinstance(each, ast.AnnAssign)}


@pytest.mark.parametrize("number", [0, 1])
def test_an_application_has_only_arguments_that_exist(number: int) -> None:
    application = applications()[number]
    assert application["import_path"] == "deploy.ray.app:build"
    assert application["args"].keys() <= settings()


def test_the_guide_names_every_argument() -> None:
    guide = (ROOT / "docs" / "guides" / "ray.md").read_text()
    assert not [name for name in settings() if f"`{name}`" not in guide]


def test_the_versions_agree() -> None:
    service, policy, scraped = yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text())
    version = service["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"ray:{version}-" in (FOLDER / "Dockerfile").read_text()
    assert f"{version}}}" in (ROOT / "scripts" / "ray-env").read_text()
    assert f"RAY ?= {version}\n" in (ROOT / "Makefile").read_text()
    (address,) = scraped["spec"]["httpSDConfigs"]
    assert address["url"].startswith(f"http://{service['metadata']['name']}-serve-svc:8000/")
    assert policy["kind"] == "NetworkPolicy"


@pytest.mark.parametrize("version", API_VERSIONS)
def test_a_strict_cluster_accepts_the_service_its_pods_and_how_they_are_found(version: str) -> None:
    objects = list(yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text()))
    assert [each["kind"] for each in objects] == ["RayService", "NetworkPolicy", "ScrapeConfig"]
    for each in objects:
        assert problems(each, version) == []
    cluster = objects[0]["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        assert pod_problems(group["template"]["spec"], version) == []
    for broken in ("minReplica", "maxReplicas"):
        wrong = copy.deepcopy(objects[0])
        wrong["spec"]["rayClusterConfig"]["workerGroupSpecs"][0][broken] = "two"
        assert len(problems(wrong, version)) == 1


def test_the_sidecar_watches_each_folder_that_a_replica_may_take() -> None:
    (application,) = yaml.safe_load((FOLDER / "vllm.yaml").read_text())["applications"]
    (config,) = application["args"]["llm_configs"]
    folder = config["runtime_env"]["env_vars"]["KVSCOPE_OBSERVER_DIR"]
    slots = config["callback_config"]["callback_kwargs"]["slots"]
    watched = read_configuration(FOLDER / "sidecar.yaml").servers
    assert [list(server.events) for server in watched] == [
        [f"ipc://{folder}/{slot}/*"] for slot in range(slots)
    ]
    module, _, name = config["callback_config"]["callback_class"].rpartition(".")
    assert f"class {name}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
