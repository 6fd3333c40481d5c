"""The example pods: unprivileged, two containers that meet, commands that exist."""

import re

import pytest

from deploy.workloads import (
    ENGINE_IMAGE,
    SGLANG_IMAGE,
    USER,
    VLLM_IMAGE,
    engine,
    sglang,
    vllm,
)
from kvscope.cli.app import every_command
from kvscope.inject.pod import EXPORTER_IMAGE, OBSERVER, SIDECAR, SOCKETS
from tests.kubernetes.objects import Object, container, pod_of
from tests.repo.checkout import ROOT

VLLM: Object = vllm()["deployment.yaml"]
SGLANG: Object = sglang()["deployment.yaml"]
ENGINE: Object = engine()["deployment.yaml"]
OBSERVED = [(VLLM, "vllm"), (SGLANG, "sglang")]
"""Deployments with an observer, and the name of the server's container."""
OURS = [
    *((server, name) for server in (VLLM, SGLANG) for name in (OBSERVER, SIDECAR)),
    (ENGINE, "engine"),
]
ALL = [*OURS, *OBSERVED]
of_observed = pytest.mark.parametrize(("deployment", "name"), OBSERVED, ids=["vllm", "sglang"])
OVERLAYS = ("compose.vllm-gpu.yaml", "compose.sglang-gpu.yaml")


def environment(settings: Object) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in settings["env"]}


@pytest.mark.parametrize(("deployment", "name"), OURS, ids=lambda value: str(value)[:9])
def test_our_containers_start_a_command_that_exists(deployment: Object, name: str) -> None:
    settings = container(deployment, name)
    assert "command" not in settings, "the image's entry point is kvscope"
    args = settings["args"]
    size = 1 if args[0] in every_command() else 2
    name = " ".join(args[:size])
    context = every_command()[name].make_context(name, args[size:])
    assert context.params.get("port", 8000) in {
        port["containerPort"] for port in settings.get("ports", [{"containerPort": 8000}])
    }


@pytest.mark.parametrize(("deployment", "name"), ALL, ids=lambda value: str(value)[:9])
def test_a_container_has_no_rights_that_it_does_not_need(deployment: Object, name: str) -> None:
    security = container(deployment, name)["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    if name not in {"vllm", "sglang"}:
        assert security["readOnlyRootFilesystem"] is True
    spec = pod_of(deployment)["spec"]
    assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC"}
    assert spec["automountServiceAccountToken"] is False


@of_observed
def test_the_sidecar_reads_the_sockets_that_the_observer_makes(
    deployment: Object, name: str
) -> None:
    observer, server, sidecar = _three(deployment, name)
    told = environment(server)
    assert observer["args"] == ["observer", "install", told["PYTHONPATH"]]
    assert f"--events={name}=ipc://{told['KVSCOPE_OBSERVER_DIR']}/*" in sidecar["args"]
    for path, volume, users in (
        (told["PYTHONPATH"], OBSERVER, (observer, server)),
        (told["KVSCOPE_OBSERVER_DIR"], SOCKETS, (server, sidecar)),
    ):
        for settings in users:
            at = mounts(settings)[volume]["mountPath"]
            assert path.startswith(f"{at}/"), "a folder of its own, with mode 0700"


def _three(deployment: Object, server: str) -> tuple[Object, Object, Object]:
    observer, its, sidecar = (container(deployment, name) for name in (OBSERVER, server, SIDECAR))
    return observer, its, sidecar


def mounts(settings: Object) -> dict[str, Object]:
    return {mount["name"]: mount for mount in settings["volumeMounts"]}


@of_observed
def test_what_a_server_imports_is_written_by_the_init_container_alone(
    deployment: Object, name: str
) -> None:
    observer, server, sidecar = _three(deployment, name)
    assert not mounts(observer)[OBSERVER].get("readOnly")
    assert mounts(server)[OBSERVER]["readOnly"] is True
    assert OBSERVER not in mounts(sidecar)
    assert mounts(sidecar)[SOCKETS]["readOnly"] is True


@pytest.mark.parametrize("deployment", [VLLM, SGLANG, ENGINE], ids=["vllm", "sglang", "engine"])
def test_no_container_runs_as_root_or_sees_the_processes_of_another(deployment: Object) -> None:
    spec = pod_of(deployment)["spec"]
    assert not spec.get("shareProcessNamespace")
    for settings in [*spec.get("initContainers", []), *spec["containers"]]:
        security = {**spec.get("securityContext", {}), **settings["securityContext"]}
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == USER


@of_observed
def test_the_sidecar_is_up_before_its_server_and_down_after_it(
    deployment: Object, name: str
) -> None:
    spec = pod_of(deployment)["spec"]
    assert [each["name"] for each in spec["containers"]] == [name]
    assert container(deployment, SIDECAR)["restartPolicy"] == "Always"
    assert "restartPolicy" not in container(deployment, OBSERVER), "else it would never end"


@of_observed
def test_a_namespace_that_enforces_restricted_admits_the_pod(deployment: Object, name: str) -> None:
    """Pod Security's rules of that level, in the order of its table."""
    spec = pod_of(deployment)["spec"]
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"}
    kinds = {kind for volume in spec["volumes"] for kind in volume} - {"name"}
    assert kinds <= {"emptyDir", "secret", "configMap", "persistentVolumeClaim"}
    for each in [*spec["initContainers"], *spec["containers"]]:
        security = {**spec["securityContext"], **each["securityContext"]}
        assert not security.get("privileged")
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] != 0
        assert not [port for port in each.get("ports", []) if "hostPort" in port]
        resources = each["resources"]
        assert resources["requests"].keys() >= {"cpu", "memory"}
        assert "memory" in resources["limits"]


@of_observed
def test_a_user_whom_the_image_does_not_know_has_a_home_and_a_name(
    deployment: Object, name: str
) -> None:
    server = container(deployment, name)
    told = environment(server)
    assert told["HOME"] == mounts(server)["models"]["mountPath"]
    assert told["USER"]


@of_observed
def test_a_sidecar_that_fails_a_probe_cannot_take_its_server_out_of_service(
    deployment: Object, name: str
) -> None:
    assert not {key for key in container(deployment, SIDECAR) if key.endswith("Probe")}


def test_a_probe_of_sglang_generates_no_token() -> None:
    told = environment(container(SGLANG, "sglang"))
    assert told["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"


@pytest.mark.parametrize(("deployment", "name"), [*OBSERVED, (ENGINE, "engine")])
def test_a_model_that_loads_is_not_restarted(deployment: Object, name: str) -> None:
    settings = container(deployment, name)
    start = settings["startupProbe"]
    allowed = start["periodSeconds"] * start["failureThreshold"]
    assert allowed >= 300
    deadline = deployment["spec"]["progressDeadlineSeconds"]
    assert deadline > allowed, "a roll-out that only loads would be called failed"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert settings[probe]["httpGet"]["port"] in {p["name"] for p in settings["ports"]}


def test_images_are_those_of_the_compose_files() -> None:
    texts = [(ROOT / name).read_text() for name in ("docker-compose.yml", *OVERLAYS)]
    for image in (ENGINE_IMAGE, EXPORTER_IMAGE, VLLM_IMAGE, SGLANG_IMAGE):
        assert any(f":-{image}}}" in text for text in texts), image


def test_the_page_names_folders_that_exist() -> None:
    page = (ROOT / "docs" / "attach" / "kubernetes.md").read_text()
    named = set(re.findall(r"deploy/(?:kubernetes|helm)[\w/-]*(?:\.yaml)?", page))
    named |= {f"deploy/kubernetes/{name}" for name in re.findall(r"^\| `(\w[\w/-]*)`", page, re.M)}
    assert len(named) >= 5
    for folder in named:
        assert (ROOT / folder).exists(), folder
