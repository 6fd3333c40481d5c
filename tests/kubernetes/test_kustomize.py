"""Kustomize builds the base, both overlays, and the vLLM with the component for NVML."""

import shutil
from pathlib import Path

import pytest

from alerts.bare.server import SERVERS
from deploy.manifests import FOLDER
from tests.kubernetes.objects import container, one, output, parsed, pod_of
from tests.kubernetes.schemas import API_VERSIONS, problems
from tests.repo.checkout import ROOT

pytestmark = pytest.mark.kubectl


@pytest.mark.parametrize("folder", ["base", "overlays/engine", "overlays/vllm"])
def test_a_folder_builds_to_the_objects_of_its_files(folder: str) -> None:
    built = parsed(output("kubectl", "kustomize", str(FOLDER / folder)))
    files = [*(FOLDER / "base").glob("*.yaml"), *(FOLDER / folder).glob("*.yaml")]
    written = (one(path.read_text()) for path in set(files))
    assert built == {
        (content["kind"], content["metadata"]["name"]): content
        for content in written
        if content["kind"] != "Kustomization"
    }


def test_the_overlay_in_the_document_builds_also_with_the_component(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "kvscope" / "deploy" / "kubernetes")
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text()
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
    image = container(deployment, "observer")["image"]
    assert image == "registry.example.com/kvscope-exporter:0.1.0"
    assert image == container(deployment, "kvscope")["image"]
    names = {entry["name"] for entry in container(deployment, "kvscope")["env"]}
    assert names == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    assert pod_of(deployment)["spec"]["runtimeClassName"] == "nvidia"


def test_the_rules_for_other_servers_are_components(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "kvscope" / "deploy" / "kubernetes")
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
