"""`--patch`: kustomize makes of a manifest and its patch what `kvscope inject` makes of it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.inject.odd_inputs import OBSERVABLE, SEVERAL_CONTAINERS
from tests.inject.run import loaded, run
from tests.inject.test_compose_files import NAMED as COMPOSE_FILES

OPTIONS = ("--user=1000", "--key-secret=key")
UNMERGED = ("json", "many_documents", "template_of_openshift")


@pytest.mark.kubectl
@pytest.mark.parametrize("name", sorted(OBSERVABLE.keys() - {*UNMERGED}))
def test_kustomize_makes_of_manifest_and_patch_what_inject_makes(name: str, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    text = OBSERVABLE[name]
    patch = run(text, "--patch", *OPTIONS)
    assert patch.code == 0, patch.said
    (tmp_path / "vllm.yaml").write_text(text)
    entries = []
    for number, document in enumerate(loaded(patch.text)):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(document))
        entries.append({"path": f"{number}.yaml"})
    made = yaml.safe_dump({"resources": ["vllm.yaml"], "patches": entries})
    (tmp_path / "kustomization.yaml").write_text(made)
    built = subprocess.run(
        [kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert _sorted(loaded(built.stdout)) == _sorted(loaded(run(text, *OPTIONS).text))


def _sorted(value: Any) -> Any:
    """The same without the order of lists, and without what is empty."""
    if isinstance(value, dict):
        inner = {key: _sorted(value[key]) for key in sorted(value)}
        return {key: one for key, one in inner.items() if one not in (None, [], {})}
    return sorted(map(_sorted, value), key=repr) if isinstance(value, list) else value


def test_a_patch_has_what_is_added_and_names_its_object() -> None:
    (patch,) = loaded(run(SEVERAL_CONTAINERS, "--patch").text)
    assert patch["metadata"] == {"name": "llama"}
    (server,) = patch["spec"]["template"]["spec"]["containers"]
    assert sorted(server) == ["env", "name", "volumeMounts"]
    observed = run(SEVERAL_CONTAINERS).text
    assert loaded(run(observed, "--patch").text) == [patch], "that of the manifest without ours"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (SEVERAL_CONTAINERS, ["--remove"], "--patch adds"),
        (next(iter(COMPOSE_FILES.values())), [], "--patch is for Kubernetes"),
        (
            SEVERAL_CONTAINERS.replace("    name: llama", "    generateName: a-"),
            [],
            "metadata.name",
        ),
    ],
)
def test_what_no_patch_can_say_is_refused(text: str, options: list[str], says: str) -> None:
    outcome = run(text, "--patch", *options)
    assert (outcome.code, outcome.text) == (2, "")
    assert says in outcome.said
