"""Kustomize builds the base, the overlays, and observed servers with the component for NVML."""

import json
import shutil
from pathlib import Path

import pytest

from deploy.__main__ import main
from deploy.manifests import DASHBOARDS, FOLDER, KUSTOMIZATION
from kvscope_alerts.bare.server import SERVERS
from tests.kubernetes.objects import container, one, output, parsed, pod_of
from tests.kubernetes.schemas import API_VERSIONS, problems
from tests.repo.checkout import ROOT

pytestmark = pytest.mark.kubectl
BOARDS = [*DASHBOARDS.glob("*.json")]
CONFIG_MAP_BYTES = 1_000_000
"""Kubernetes takes a little more than a megabyte."""


@pytest.mark.parametrize("folder", ["base", "overlays/engine", "overlays/sglang", "overlays/vllm"])
def test_a_folder_builds_to_the_objects_of_its_files_and_the_dashboards(folder: str) -> None:
    built = parsed(output("kubectl", "kustomize", str(FOLDER / folder)))
    boards = {key: content for key, content in built.items() if key[0] == "ConfigMap"}
    files = [*(FOLDER / "base").glob("*.yaml"), *(FOLDER / folder).glob("*.yaml")]
    written = [one(path.read_text()) for path in set(files)]
    written = [content for content in written if content["kind"] != "Kustomization"]
    assert built.keys() == {*boards, *((o["kind"], o["metadata"]["name"]) for o in written)}
    for content in written:
        assert built[content["kind"], content["metadata"]["name"]] == content
    data = {name: text for content in boards.values() for name, text in content["data"].items()}
    assert data == {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}


def test_a_config_map_is_accepted_and_has_the_uid_of_its_board() -> None:
    built = parsed(output("kubectl", "kustomize", str(DASHBOARDS)))
    assert built
    for (_, name), content in built.items():
        ((_, text),) = content["data"].items()
        assert len(text) < CONFIG_MAP_BYTES
        assert f"{json.loads(text)['uid']}-dashboard" == name
        assert content["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert [problem for version in API_VERSIONS for problem in problems(content, version)] == []
        content["data"]["number"] = 1
        assert all(len(problems(content, version)) == 1 for version in API_VERSIONS)


def test_what_is_written_elsewhere_finds_the_dashboards(tmp_path: Path) -> None:
    main(["--out", str(tmp_path)])
    built = parsed(output("kubectl", "kustomize", str(tmp_path / "base")))
    assert len([kind for kind, _ in built if kind == "ConfigMap"]) == len(BOARDS)


def _cloned(folder: Path) -> None:
    """The files in a clone that kustomize reads."""
    shutil.copytree(FOLDER, folder / "deploy" / "kubernetes")
    (folder / "dashboards").mkdir()
    for path in (*BOARDS, KUSTOMIZATION):
        shutil.copy(path, folder / "dashboards")


def test_the_overlay_in_the_document_builds_also_with_the_component(tmp_path: Path) -> None:
    _cloned(tmp_path / "kvscope")
    page = (ROOT / "docs" / "attach" / "kubernetes.md").read_text()
    overlay = page.split("```yaml\n")[1].split("```")[0]
    component = "components: [kvscope/deploy/kubernetes/components/nvml]\n"
    (tmp_path / "kustomization.yaml").write_text(overlay + component)
    built = parsed(output("kubectl", "kustomize", str(tmp_path)))
    for content in built.values():
        assert content["metadata"]["namespace"] == "inference"
        assert content["metadata"]["labels"]["release"] == "monitoring"
        assert [problem for version in API_VERSIONS for problem in problems(content, version)] == []
    deployment = built["Deployment", "vllm"]
    assert container(deployment, "vllm")["args"][0].startswith("meta-llama/")
    image = container(deployment, "kvscope-observer")["image"]
    assert image == "registry.example.com/kvscope-exporter:0.1.0"
    assert image == container(deployment, "kvscope")["image"]
    names = {entry["name"] for entry in container(deployment, "kvscope")["env"]}
    assert names == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    assert pod_of(deployment)["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_component_changes_the_pod_of_either_server(tmp_path: Path, name: str) -> None:
    _cloned(tmp_path / "kvscope")
    components = "".join(
        f"- kvscope/deploy/kubernetes/components/{each}\n" for each in ("nvml", "host-memory")
    )
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [kvscope/deploy/kubernetes/overlays/{name}]\ncomponents:\n{components}"
    )
    built = parsed(output("kubectl", "kustomize", str(tmp_path)))
    deployment = built["Deployment", name]
    pod = pod_of(deployment)["spec"]
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["shareProcessNamespace"] is True
    assert container(deployment, "kvscope")["env"]
    assert [problem for version in API_VERSIONS for problem in problems(deployment, version)] == []


def test_a_key_is_asked_for_by_the_sidecar_and_sent_by_prometheus(tmp_path: Path) -> None:
    _cloned(tmp_path / "kvscope")
    names = ("key", "network-policy", "other-ports", "nvml")
    components = "".join(f"- kvscope/deploy/kubernetes/components/{each}\n" for each in names)
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [kvscope/deploy/kubernetes/overlays/vllm]\ncomponents:\n{components}"
    )
    built = parsed(output("kubectl", "kustomize", str(tmp_path)))
    sidecar = container(built["Deployment", "vllm"], "kvscope")
    told = {entry["name"]: entry["value"] for entry in sidecar["env"]}
    (mount,) = (each for each in sidecar["volumeMounts"] if each["name"] == "kvscope-key")
    (volume,) = (
        each
        for each in pod_of(built["Deployment", "vllm"])["spec"]["volumes"]
        if each["name"] == "kvscope-key"
    )
    (endpoint,) = built["PodMonitor", "kvscope"]["spec"]["podMetricsEndpoints"]
    credentials = endpoint["authorization"]["credentials"]
    assert told["KVSCOPE_SIDECAR_METRICS_KEY_FILE"] == f"{mount['mountPath']}/{credentials['key']}"
    assert volume["secret"]["secretName"] == credentials["name"]
    for content in built.values():
        assert [problem for version in API_VERSIONS for problem in problems(content, version)] == []


def test_the_rules_for_other_servers_are_components(tmp_path: Path) -> None:
    _cloned(tmp_path / "kvscope")
    names = [f"{server.word}-rules" for server in SERVERS]
    components = "".join(f"- kvscope/deploy/kubernetes/components/{name}\n" for name in names)
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [kvscope/deploy/kubernetes/base]\ncomponents:\n{components}"
    )
    built = parsed(output("kubectl", "kustomize", str(tmp_path)))
    rules = {name for kind, name in built if kind == "PrometheusRule"}
    assert rules == {"kvscope", "kvscope-vllm", "kvscope-sglang"}
    without = parsed(output("kubectl", "kustomize", str(FOLDER / "base")))
    assert {name for kind, name in without if kind == "PrometheusRule"} == {"kvscope"}
