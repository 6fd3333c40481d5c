"""Odd manifests are observed, once, and given back byte for byte."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kvscope.inject.pod import OBSERVER, PLUGIN_FOLDER, SIDECAR, SOCKETS
from tests.inject.odd_inputs import (
    ARGUMENTS_ONLY,
    EXISTING_PATH_AND_PLUGINS,
    NO_PLUGINS_ALLOWED,
    OBSERVABLE,
    SHELL_FORM,
    VARIABLES_FROM_A_CONFIG_MAP,
    WINDOWS_LINES,
)
from tests.inject.pods import environment, observed, server_of
from tests.inject.run import loaded, run
from tests.kubernetes.schemas import API_VERSIONS, pod_problems

each = pytest.mark.parametrize("text", OBSERVABLE.values(), ids=OBSERVABLE.keys())


@each
def test_it_is_observed_and_only_added_to(text: str) -> None:
    outcome = run(text)
    assert outcome.code == 0, outcome.said
    pods = observed(outcome.text)
    assert pods
    for pod in pods:
        container = server_of(pod)
        assert environment(container)["PYTHONPATH"].startswith(PLUGIN_FOLDER)
        assert {OBSERVER, SOCKETS} <= {volume["name"] for volume in pod["volumes"]}
        assert [c["name"] for c in pod["initContainers"][-2:]] == [OBSERVER, SIDECAR]
    rest = iter(outcome.text)
    assert all(character in rest for character in text), "what was there is there, in order"


@each
def test_a_second_time_changes_nothing(text: str) -> None:
    once = run(text).text
    again = run(once)
    assert again.text == once
    assert again.code == 0
    assert "already observed" in again.said


@each
@pytest.mark.parametrize("options", [(), ("--key-secret=page",)], ids=["plain", "key"])
def test_removing_gives_the_input_back(text: str, options: tuple[str, ...]) -> None:
    back = run(run(text, *options).text, "--remove")
    assert back.text == text
    assert back.code == 0
    assert run(text, "--remove").text == text


@each
def test_the_pods_are_accepted_by_the_api(text: str) -> None:
    for pod in observed(run(text, "--key-secret=page/bearer").text):
        spec = {
            key: value for key, value in pod.items() if key not in ("model", "runner", "labels")
        }
        spec.setdefault("containers", [{"name": "kserve-container"}])
        for version in API_VERSIONS:
            assert pod_problems(spec, version) == []


def test_line_ends_are_those_of_the_file() -> None:
    text = run(WINDOWS_LINES).text
    assert text.count("\n") == text.count("\r\n")
    assert text.count("\n") > WINDOWS_LINES.count("\n")


def test_other_folders_and_plugins_are_kept() -> None:
    (pod,) = observed(run(EXISTING_PATH_AND_PLUGINS).text)
    variables = environment(server_of(pod))
    assert variables["PYTHONPATH"] == f"{PLUGIN_FOLDER}:/opt/ours:/opt/theirs"
    assert variables["VLLM_PLUGINS"] == "lora_resolver,kvscope"
    (pod,) = observed(run(NO_PLUGINS_ALLOWED).text)
    assert environment(server_of(pod))["VLLM_PLUGINS"] == "kvscope"


def test_a_path_from_a_config_map_is_kept() -> None:
    outcome = run(VARIABLES_FROM_A_CONFIG_MAP)
    (pod,) = observed(outcome.text)
    assert environment(server_of(pod))["PYTHONPATH"] == f"{PLUGIN_FOLDER}:$(PYTHONPATH)"
    assert "variables from settings" in outcome.said


def test_a_port_in_a_script_is_read_by_the_sidecar() -> None:
    (pod,) = observed(run(SHELL_FORM).text)
    assert "--url=vllm=http://127.0.0.1:8200" in pod["initContainers"][-1]["args"]


@pytest.mark.parametrize(
    "shell",
    [
        *('["/bin/bash", "-lc", "--"]', "[bash, -ce]", "[bash, -c, -o, pipefail]"),
        *("[bash, -ceuo, pipefail]", "[sh, -c, +x, --]"),
    ],
)
def test_a_script_after_more_options_of_its_shell_is_read(shell: str) -> None:
    """The first form is KubeRay's own, for a command that comes in place of the generated one."""
    outcome = run(SHELL_FORM.replace("[/bin/bash, -lc]", shell))
    assert "observed: container vllm (vLLM, http://127.0.0.1:8200)" in outcome.said


@pytest.mark.parametrize("before", ["pip install -U vllm", "vllm --version", "cd /opt/vllm"])
def test_a_script_may_speak_of_vllm_before_it_starts_one(before: str) -> None:
    outcome = run(SHELL_FORM.replace("export HF_HOME=/models", before))
    assert "observed: container vllm (vLLM, http://127.0.0.1:8200)" in outcome.said


def test_containers_of_ours_have_the_users_id_of_the_server() -> None:
    (pod,) = observed(run(SHELL_FORM).text)
    for one in pod["initContainers"]:
        assert one["securityContext"]["runAsUser"] == 2000
        assert one["securityContext"]["runAsNonRoot"] is True
        assert one["securityContext"]["readOnlyRootFilesystem"] is True


def pruned(content: Any) -> Any:
    """Without what is empty, which the API server does not keep."""
    if isinstance(content, dict):
        kept = {key: pruned(value) for key, value in content.items()}
        return {key: value for key, value in kept.items() if value not in (None, {}, [])}
    if isinstance(content, list):
        return [pruned(value) for value in content]
    return content


def as_yaml(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=True)


def as_json(content: Any) -> str:
    return json.dumps(content, indent=4, sort_keys=True)


def as_kyaml(content: Any) -> str:
    """Brackets on lines of their own, bare keys, and a comma behind every element."""
    text = re.sub(r"(?<=[^\s\[{,])$", ",", as_json(content), flags=re.MULTILINE)
    return "---\n" + re.sub(r'^( +)"(\w+)":', r"\1\2:", text, flags=re.MULTILINE).rstrip(",") + "\n"


@each
@pytest.mark.parametrize("write", [as_yaml, as_json, as_kyaml])
def test_what_a_cluster_gives_back_is_recognised(text: str, write: Callable[[Any], str]) -> None:
    """Keys sorted, without comments, in another style: as `kubectl get -o` writes it."""
    (given, observed) = ({"kind": "List", "items": loaded(one)} for one in (text, run(text).text))
    assert yaml.safe_load(write(given)) == given
    stored = write(observed)
    assert run(stored).text == stored
    assert pruned(loaded(run(stored, "--remove").text)) == pruned(given["items"])


@pytest.mark.parametrize("write", [as_yaml, as_json, as_kyaml])
def test_no_empty_collection_of_ours_is_left_in_what_a_cluster_gives_back(
    write: Callable[[Any], str],
) -> None:
    """A custom resource would keep it."""
    (given,) = loaded(SHELL_FORM)
    (observed,) = loaded(run(SHELL_FORM).text)
    assert loaded(run(write(observed), "--remove").text) == [given]


def test_a_comma_behind_the_last_element_goes_with_it() -> None:
    """Another program may put one behind the elements that filled an empty collection."""
    template = ARGUMENTS_ONLY.replace("name: bare", "name: bare, labels: {}")
    filled = run(template).text.replace('"observed"}', '"observed" , }')
    assert " , }" in filled
    assert run(filled, "--remove").text == template.replace("labels: {}", "labels: { }")


@pytest.mark.parametrize(
    ("blocks", "cpu", "limit"),
    [("200000", "100m", "1Gi"), ("200001", "500m", "2Gi"), ("4194304", "1", "6Gi")],
)
def test_a_large_pool_has_a_sidecar_with_more_memory(blocks: str, cpu: str, limit: str) -> None:
    (pod,) = observed(run(EXISTING_PATH_AND_PLUGINS, f"--blocks={blocks}").text)
    resources = next(one["resources"] for one in pod["initContainers"] if one["name"] == SIDECAR)
    assert (resources["requests"]["cpu"], resources["limits"]["memory"]) == (cpu, limit)


@each
def test_with_a_limit_of_cpu_both_containers_have_it_and_removing_gives_the_input_back(
    text: str,
) -> None:
    limited = run(text, "--cpu-limit=1.5")
    for pod in observed(limited.text):
        for one in pod["initContainers"][-2:]:
            assert one["resources"]["limits"]["cpu"] == "1.5"
        spec = {
            key: value for key, value in pod.items() if key not in ("model", "runner", "labels")
        }
        spec.setdefault("containers", [{"name": "kserve-container"}])
        for version in API_VERSIONS:
            assert pod_problems(spec, version) == []
    assert run(limited.text, "--cpu-limit=1.5").text == limited.text
    assert run(limited.text, "--remove").text == text


def test_without_the_option_no_container_has_a_limit_of_cpu() -> None:
    (pod,) = observed(run(SHELL_FORM).text)
    for one in pod["initContainers"]:
        assert one["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("given", ["100m", "0.1", "1", "0.125"])
def test_a_limit_of_cpu_may_equal_the_request(given: str) -> None:
    (pod,) = observed(run(SHELL_FORM, f"--cpu-limit={given}").text)
    assert {one["resources"]["limits"]["cpu"] for one in pod["initContainers"]} == {given}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--cpu-limit=99m"], "below the 100m that the sidecar requests for 200000 blocks"),
        (["--cpu-limit=0"], "below the 100m"),
        (["--cpu-limit=0.4", "--blocks=1000000"], "below the 500m"),
        (["--cpu-limit=999m", "--blocks=4000000"], "below the 1 that"),
        *(
            ([f"--cpu-limit={text}"], "expected an amount of CPU")
            for text in ("", "one", "-1", "1k", "1.0001", "1.", "1\n", "\u0661", "0.5m", "1e3")
        ),
    ],
)
def test_a_limit_of_cpu_that_no_pod_could_have_is_refused(options: list[str], reason: str) -> None:
    outcome = run(SHELL_FORM, *options)
    assert (outcome.text, outcome.code) == ("", 2)
    assert reason in outcome.said


JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: once
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: batch
        image: vllm/vllm-openai:v0.32.0
"""


def test_a_label_that_a_cluster_copies_to_a_job_is_removed_there_as_well() -> None:
    (observed,) = loaded(run(JOB).text)
    observed["metadata"] |= {"uid": "1", "labels": {"kvscope": "observed", "job-name": "once"}}
    back = run(as_yaml(observed), "--remove").text
    assert loaded(back)[0]["metadata"] == {
        "name": "once",
        "uid": "1",
        "labels": {"job-name": "once"},
    }
    own = JOB.replace("name: once", "name: once\n  labels: {kvscope: observed}", 1)
    assert run(run(own).text, "--remove").text == own


@pytest.mark.parametrize(
    ("text", "advice"),
    [(JOB, "Job/once: a Job that exists"), (ARGUMENTS_ONLY, "Pod/bare: a Pod that exists")],
)
def test_kinds_that_cannot_be_changed_in_place_are_named(text: str, advice: str) -> None:
    observed = run(text)
    assert observed.said.count(advice) == 1
    assert run(observed.text, "--remove").said.count(advice) == 1
    assert advice not in run(text, "--remove").said
    assert "exists cannot be changed" not in run(SHELL_FORM).said
