"""Inputs that are refused, or left as they are: each with a line that says why."""

import pytest

from tests.inject.odd_inputs import ARGUMENTS_ONLY, OBSERVABLE, SEVERAL_CONTAINERS
from tests.inject.run import run

RAY = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: ray
spec:
  headGroupSpec:
    template:
      spec:
        securityContext: {runAsUser: 1000}
        containers:
          - name: ray-head
            image: rayproject/ray:2.60.0
  workerGroupSpecs:
    - groupName: gpu
      template:
        spec:
          securityContext: {runAsUser: 1000}
          containers:
            - name: ray-worker
              image: rayproject/ray-llm:2.60.0
"""


def container(*lines: str, name: str = "vllm", image: str = "vllm/vllm-openai:v0.32.0") -> str:
    """A container with these lines below its name and image."""
    rest = "".join(f"        {line}\n" for line in lines)
    return f"      - name: {name}\n        image: {image}\n{rest}"


VLLM = container()


def deployment(containers: str, more: str = "") -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: one\nspec:\n  template:\n"
        f"    spec:\n      containers:\n{containers}{more}"
    )


MERGED = deployment(container("<<: *common")).replace(
    "spec:\n  template", "x: &common {env: [{name: A, value: b}]}\nspec:\n  template"
)
LABELLED = deployment(VLLM).replace(
    "    spec:\n", "    metadata:\n      labels: {kvscope: mine}\n    spec:\n"
)
SHARED = container(name="b", image="nginx")
VARIABLE = "{name: A, value: b}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (deployment(VLLM + container(name="other")), "several servers (vllm, other)"),
        (deployment(container("command: [vllm, serve]", image="ours/llm")), "--user UID"),
        (deployment(container("ports: [{containerPort: 8010}]")), "--port"),
        (
            deployment(container("env: [{name: PYTHONPATH, valueFrom: {fieldRef: {}}}]")),
            "PYTHONPATH comes from elsewhere",
        ),
        (
            deployment(container("env: [{name: VLLM_PLUGINS, valueFrom: {fieldRef: {}}}]")),
            "VLLM_PLUGINS comes from elsewhere",
        ),
        (deployment(container('env: [{name: PYTHONPATH, value: ""}]')), "PYTHONPATH is empty"),
        (deployment(container("env: [{name: VLLM_PLUGINS, value: a}]")), "in quotes"),
        (
            deployment(container("env:", "- name: PYTHONPATH", '  value: "/a\\x62"')),
            "on one line",
        ),
        (deployment(VLLM, "      volumes: null\n"), "`volumes` is null"),
        (
            deployment(container('command: [sh, -c, "PYTHONPATH=/x vllm serve m"]')),
            "its script sets PYTHONPATH",
        ),
        (
            deployment(container("command: [python3, -I, -m, vllm.entrypoints.openai.api_server]")),
            "ignores PYTHONPATH (-I)",
        ),
        (
            deployment(container(f"env: &env [{VARIABLE}]") + f"{SHARED}        env: *env\n"),
            "has an anchor that is used again",
        ),
        (
            deployment(f"{SHARED}        env: &env [{VARIABLE}]\n" + container("env: *env")),
            "is the alias *env",
        ),
        (MERGED, "comes from a merge"),
        (LABELLED, "its label kvscope is 'mine'"),
    ],
)
def test_a_server_that_cannot_be_observed_stays_as_it_is(text: str, reason: str) -> None:
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 1), "a pipeline would apply it"
    assert "Deployment/one: left alone: " in outcome.said
    assert reason in outcome.said


def test_a_job_with_an_ordinary_sidecar_would_never_end() -> None:
    text = OBSERVABLE["scheduled"]
    for option in ("--ordinary-sidecar", "--fail-open"):
        outcome = run(text, option)
        assert (outcome.text, outcome.code) == ("", 1)
        assert f"the pod never ends: leave out {option}" in outcome.said


def test_what_can_be_observed_is_observed_beside_what_cannot() -> None:
    stuck = deployment(VLLM, "      volumes: ~\n")
    outcome = run(f"{stuck}---\n{ARGUMENTS_ONLY}")
    assert outcome.text.startswith(f"{stuck}---\n")
    assert "kvscope-observer" in outcome.text
    assert outcome.code == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "---\n---\n",
        "just words\n",
        "- 1\n- 2\n",
        "kind: Service\nmetadata: {name: a}\nspec: {selector: {a: b}}\n",
        "kind: CustomResourceDefinition\nmetadata: {name: a}\n",
        deployment(container("command: [vllm, bench, serve]")),
        deployment(container(image="nginx")),
        "kind: Deployment\nspec:\n",
        "kind: Deployment\nspec: {template: {spec: {containers: [null, 3, {}]}}}\n",
        "kind: Pod\nspec: {containers: {}}\n",
        "kind: List\nitems:\n",
    ],
)
def test_of_a_file_without_a_server_nothing_is_written(text: str) -> None:
    """A pipeline does not see the exit status, and would apply the file as it is."""
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 1)
    assert "nothing is written, since no server was observed" in outcome.said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b\n---\n{{- if .Values.a }}\nkind: Pod\n{{- end }}\n", "line 2: it is a template"),
        (deployment(VLLM).replace("v0.32.0", "{{ .Values.tag }}"), "line 10: it is a template"),
        (deployment(VLLM).replace("one", "{{ .Release.Name }}"), "line 4: it is a template"),
        (SEVERAL_CONTAINERS.replace("    spec:", "\tspec:", 1), "line 11: a tab where"),
        ("kind: Pod\nspec: [\n", "line 3: "),
        ("kind: Pod\nspec: *nowhere\n", "undefined alias *nowhere"),
        (b"kind: \xff\n", "not UTF-8 at byte 6"),
        ("kind: \x01\n", "special characters"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_nothing_is_written(
    text: str | bytes, reason: str
) -> None:
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 2)
    assert reason in outcome.said


def test_a_chat_template_is_no_template() -> None:
    text = deployment(container("args: [--chat-template, '{{ messages }}{%- if x %}']"))
    assert run(text).code == 0


@pytest.mark.parametrize("kind", ["LLMInferenceService", "LLMInferenceServiceConfig"])
def test_templates_that_kserves_controller_fills_in_are_texts(kind: str) -> None:
    text = f"""\
apiVersion: serving.kserve.io/v1alpha2
kind: {kind}
metadata: {{name: templated}}
spec:
  template:
    containers:
      - name: main
        securityContext: {{runAsUser: 2000}}
        command: [/bin/sh, -c]
        args:
          - |
            vllm serve --served-model-name "{{{{ .Spec.Model.Name }}}}" \\
              {{{{- if .Spec.Parallelism }}}} --tensor-parallel-size 2{{{{- end }}}}
    volumes:
      - name: certificates
        secret: {{secretName: "{{{{ ChildName .ObjectMeta.Name `-certs` }}}}"}}
"""
    observed = run(text)
    assert "observed: container main" in observed.said
    assert run(observed.text, "--remove").text == text
    bare = text.replace('"{{ ChildName .ObjectMeta.Name `-certs` }}"', "{{ .ObjectMeta.Name }}")
    assert "it is a template" in run(bare).said
    assert (
        "it is a template"
        in run(text.replace(kind, "InferenceService").replace("template:", "predictor:")).said
    )


def test_a_container_and_its_user_can_be_named() -> None:
    text = deployment(VLLM + container(name="second"))
    outcome = run(text, "--container=second", "--user=7", "--port=9000")
    assert outcome.code == 0
    assert "runAsUser: 7" in outcome.text
    assert "container second" in outcome.said
    assert run(outcome.text, "--remove").text == text


@pytest.mark.parametrize(
    "option", ["--user=x", "--user=-1", "--key-secret=/a", "--key-secret=a/b/c"]
)
def test_a_bad_option_is_named(option: str) -> None:
    outcome = run(ARGUMENTS_ONLY, option)
    assert outcome.code == 2
    assert option.partition("=")[0] in outcome.said


def test_what_others_added_later_stays() -> None:
    once = run(ARGUMENTS_ONLY).text
    added = once.replace('labels": {"kvscope": "observed"', 'labels": {"kvscope": "observed", x: y')
    assert added != once
    back = run(added, "--remove").text
    assert "kvscope" not in back
    assert "x: y" in back


@pytest.mark.parametrize("text", [OBSERVABLE["leader_and_workers"], RAY], ids=["lws", "ray"])
def test_pods_in_which_ray_starts_the_workers_are_left_alone_unless_named(text: str) -> None:
    """Ray may give them none: their pages would be `expected` for ever, which is an alert."""
    name = "worker" if text != RAY else "ray-worker"
    outcome = run(text)
    assert f"{name} left alone: its command starts no vLLM" in outcome.said
    assert outcome.text.count("args:\n") == (0 if text == RAY else 2)
    named = run(text, f"--container={name}")
    assert (named.code, f"observed: container {name}" in named.said) == (0, True)
    assert run(named.text, "--remove").text == text


def test_workers_of_an_engine_in_another_pod_are_observed_by_a_page_of_their_own() -> None:
    text = OBSERVABLE["leader_and_workers"].replace(
        'command: [sh, -c, "start-ray.sh worker',
        'command: [sh, -c, "vllm serve m --nnodes 2 --node-rank 1 --headless',
    )
    outcome = run(text)
    assert "observed: container worker (vLLM, its page is not read" in outcome.said
    assert outcome.text.count("--url=") == 1, "that of the leader"
    assert run(outcome.text, "--remove").text == text


def test_workers_with_engines_of_their_own_are_observed() -> None:
    text = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: wide}
spec:
  parallelism: {data: 16, dataLocal: 8}
  template:
    containers: [{name: main, securityContext: {runAsUser: 2000}}]
  worker:
    containers: [{name: main, securityContext: {runAsUser: 2000}}]
"""
    assert run(text).said.count("observed: container main") == 2
    assert run(text.replace("data: 16, ", "")).said.count("observed: container main") == 1


HUGGING_FACE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}
spec:
  predictor:
    model: {modelFormat: {name: huggingface}, args: [--backend=vllm]}
"""


def test_advice_names_a_container_that_is_there() -> None:
    outcome = run(HUGGING_FACE)
    assert (outcome.text, outcome.code) == ("", 1)
    assert "InferenceService/qwen (container model)" in outcome.said
    assert outcome.said.endswith("If a container here runs one, name it: --container model\n")
    other = run(HUGGING_FACE, "--container=kserve-container")
    assert "InferenceService/qwen: has no container kserve-container, but model" in other.said
    assert run(HUGGING_FACE, "--container=model", "--user=1000").code == 0


SERVERS = (
    "{name: chat, image: vllm/vllm-openai:v0.32.0}",
    "{name: chat, image: ours/llm, command: [sh, -c], args: ['exec vllm serve m']}",
    "{name: chat, image: ours/llm, command: [python3, -m, sglang.launch_server]}",
)
SOMEWHERE_ELSE = {
    "serving.knative.dev/v1 Service": (
        "template: {{spec: {{containers: [{server}]}}}}",
        "Knative takes no init containers",
    ),
    "serving.kserve.io/v1alpha1 ServingRuntime": ("containers: [{server}]", "no place for init"),
    "engines.example/v1 Engine": ("containers: [{server}]", "name it with --path spec"),
    "models.example/v1 Model": ("backends: [{server}]", "has no pod's spec: the controller of a"),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", SOMEWHERE_ELSE)
def test_a_server_where_nothing_can_be_added_is_left_alone_with_what_works(
    kind: str, server: str
) -> None:
    version, name = kind.split()
    spec, reason = SOMEWHERE_ELSE[kind]
    text = (
        f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: one}}\n"
        f"spec: {{{spec.format(server=server)}}}\n"
    )
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 1)
    assert f"{name}/one: left alone: " in outcome.said
    assert reason in outcome.said
    beside = run(f"{text}---\n{ARGUMENTS_ONLY}")
    assert (beside.code, f"{name}/one: left alone: " in beside.said) == (1, True)
    assert beside.text.startswith(text)
    if "containers" in spec:
        named = run(
            text, "--path=/spec/template" if "template" in spec else "--path=spec", "--user=1"
        )
        assert named.code == 0, named.said
        assert run(named.text, "--remove").text == text


def test_an_engine_that_another_program_starts_is_named_with_what_works() -> None:
    graph = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  services:
    Worker:
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1
          command: [python3, -m, dynamo.vllm]
"""
    outcome = run(graph)
    assert outcome.code == 1
    assert "dynamo.vllm starts the engine in its own process" in outcome.said
    assert "--container mainContainer" in outcome.said
    named = run(graph, "--container=mainContainer", "--user=1000")
    assert "extraPodMetadata:\n        labels:\n          kvscope: observed\n" in named.text
    assert run(named.text, "--remove").text == graph
    nim = deployment(container(image="nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8"))
    assert "llama-3.1-8b-instruct:1.8 chooses its engine" in run(nim).said


def test_a_path_takes_some_of_an_objects_pods() -> None:
    text = OBSERVABLE["roles_by_shape"]
    some = run(text, "--path=spec/roles/*/template")
    assert (some.code, some.said.count("observed: container"), some.text.count("--url=")) == (
        0,
        2,
        2,
    )
    assert run(text).said.count("observed: container") == 4
    whole = run(run(text).text, "--path=spec/roles/*/template", "--port=9000")
    assert (whole.code, whole.text.count("--port=9000"), whole.text.count("--port=")) == (0, 2, 4)
    elsewhere = run(text, "--path=spec/template")
    assert elsewhere.code == 1
    assert "has no pod's spec at spec/template, but at spec/roles/*/template/spec" in elsewhere.said
    assert run(some.text, "--remove").text == text
