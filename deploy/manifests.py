"""The files of deploy/kubernetes/: a kustomize base that watches, workloads, and components."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from deploy.alerting import STACK_VALUES, WEBHOOK, alertmanager_config, stack_values, webhook
from deploy.fleet import NAME as FLEET
from deploy.fleet import fleet
from deploy.monitoring import (
    LABELS,
    NAME,
    RELEASE,
    dashboards,
    monitoring,
    network_policy,
    other_ports,
)
from deploy.packs import packs
from deploy.workloads import engine, labelled, sglang, vllm
from kvscope.inject.pod import KEY, KEYS, SIDECAR
from kvscope_alerts.edits import Edits
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rule import Places
from kvscope_alerts.yaml_text import to_yaml

FOLDER = Path(__file__).parent / "kubernetes"
DASHBOARDS = FOLDER.parent.parent / "dashboards"
KUSTOMIZATION = DASHBOARDS / "kustomization.yaml"
"""Beside the dashboards' JSON, because kustomize reads no files above a folder, only other
folders."""
MARK = "Written by `python -m deploy`"
"""First line of every file: files that have it may be replaced."""
_MONITORING = f"{MARK}: change alerts/ or deploy/monitoring.py."
_WORKLOAD = f"{MARK}: change deploy/workloads.py. docs/attach/kubernetes.md explains it."
_FLEET = f"{MARK}: change deploy/fleet.py. docs/plan/fleet.md explains it."
_IMAGE = """
No image of kvscope is published: build it, push it, and name yours under `images` in your own
kustomization. As it is, the pod stays in ImagePullBackOff, and nothing in it starts."""
_KUSTOMIZATION = f"""\
{MARK}: change deploy/manifests.py. For `kubectl apply --server-side -k`
(dashboards are too long for the annotation of a client-side apply)."""
_PACK = f"{MARK}: change alerts/kvscope_alerts/bare/. docs/attach/bare-servers.md explains it."
_POLICY = f"""\
{MARK}: change deploy/monitoring.py. Apply it in each namespace with observed
pods. It also closes the server's own port, unless another policy opens that: components/other-ports
does, for everyone."""
_OTHER_PORTS = f"""\
{MARK}: change deploy/monitoring.py. It opens all other ports of observed pods
to everyone: only for namespaces in which no policy of yours limits who reaches them."""
_ALERTMANAGER = f"""\
{MARK} from deploy/alertmanager/alertmanager.yml: change that.
docs/operate/alerts.md explains it."""
KEY_SECRET = ("kvscope-key", "token")
"""Secret of the component `key`, and its key with the bearer token."""
_PROMETHEUS = "monitoring"
"""Namespace of the cluster's Prometheus."""
_COMPONENT = {"version": "v1alpha1", "kind": "Component"}
_OBSERVED = "vllm|sglang"
"""Names of the Deployments with an observer, as a regular expression."""
_NO_JOBS: Mapping[str, str] = MappingProxyType({})
_NO_GRAFANA = Places(grafana="")
"""The address of the cluster's Grafana is unknown here: links begin with /d/ unless --grafana gives
it.
"""


def manifests(
    boards: str = "../../../dashboards",
    places: Places = _NO_GRAFANA,
    objectives: Objectives | None = None,
    release: str = RELEASE,
    jobs: Mapping[str, str] = _NO_JOBS,
    edits: Edits | None = None,
) -> dict[str, str]:
    """Text by path below the folder. boards: the folder of the dashboards, a base of its own,
    relative to base/; jobs: those of servers without kvscope, as in deploy/packs.py."""
    base = monitoring(places, objectives, release, edits)
    components = packs(places, release, jobs)
    policy = {"networkpolicy.yaml": network_policy(_PROMETHEUS, [labelled(FLEET)])}
    others = {"networkpolicy.yaml": other_ports()}
    inhibition = {"alertmanagerconfig.yaml": alertmanager_config(dict(LABELS))}
    followed = _folder("components/fleet", fleet(release), _FLEET, **_COMPONENT)
    return {
        **_folder("base", base, _MONITORING, above=boards),
        **_folder("overlays/engine", engine(), _WORKLOAD, above="../../base"),
        **_folder("overlays/sglang", sglang(), _WORKLOAD, above="../../base"),
        **_folder("overlays/vllm", vllm(), _WORKLOAD, above="../../base"),
        "components/key/kustomization.yaml": to_yaml(_key(), _KUSTOMIZATION),
        **_folder("components/alertmanager", inhibition, _ALERTMANAGER, **_COMPONENT),
        **_folder("components/network-policy", policy, _POLICY, **_COMPONENT),
        **_folder("components/other-ports", others, _OTHER_PORTS, **_COMPONENT),
        "components/nvml/kustomization.yaml": to_yaml(_nvml(), _KUSTOMIZATION),
        "components/host-memory/kustomization.yaml": to_yaml(_host_memory(), _KUSTOMIZATION),
        **followed,
        **{
            path: text
            for name, objects in components.items()
            for path, text in _folder(f"components/{name}", objects, _PACK, **_COMPONENT).items()
        },
    }


def of_alertmanager() -> dict[Path, str]:
    """Text of the files that are made of our Alertmanager's configuration."""
    made = {WEBHOOK: webhook(), STACK_VALUES: stack_values()}
    return {path: to_yaml(content, _ALERTMANAGER) for path, content in made.items()}


def of_dashboards() -> str:
    """Text of the kustomization that makes ConfigMaps of the dashboards."""
    return to_yaml(dashboards(DASHBOARDS), f"{MARK}: change deploy/monitoring.py.")


def _folder(
    name: str,
    objects: Mapping[str, object],
    header: str,
    above: str = "",
    version: str = "v1beta1",
    kind: str = "Kustomization",
) -> dict[str, str]:
    files = {
        f"{name}/{file}": to_yaml(content, header + _IMAGE * (file == "deployment.yaml"))
        for file, content in objects.items()
    }
    kustomization = {
        "apiVersion": f"kustomize.config.k8s.io/{version}",
        "kind": kind,
        "resources": [*([above] if above else []), *sorted(objects)],
    }
    files[f"{name}/kustomization.yaml"] = to_yaml(kustomization, _KUSTOMIZATION)
    return files


def _nvml() -> dict[str, object]:
    """Lets the sidecar query the driver, if the node's NVIDIA runtime honours the variables."""
    variables = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]
    return _patched(
        {"runtimeClassName": "nvidia", "initContainers": [{"name": SIDECAR, "env": variables}]}
    )


def _key() -> dict[str, object]:
    """Asks for a bearer token on the sidecar's page, and has Prometheus send it."""
    name, key = KEY_SECRET
    sidecar = {
        "name": SIDECAR,
        "env": [{"name": "KVSCOPE_SIDECAR_METRICS_KEY_FILE", "value": f"{KEYS}/{key}"}],
        "volumeMounts": [{"name": KEY, "mountPath": KEYS, "readOnly": True}],
    }
    volume = {"name": KEY, "secret": {"secretName": name}}
    component = _patched({"initContainers": [sidecar], "volumes": [volume]})
    token = {"type": "Bearer", "credentials": {"name": name, "key": key}}
    authorization = [
        {"op": "add", "path": "/spec/podMetricsEndpoints/0/authorization", "value": token}
    ]
    patches = component["patches"]
    assert isinstance(patches, list)
    target = {"kind": "PodMonitor", "name": NAME}
    component["patches"] = [*patches, {"patch": to_yaml(authorization), "target": target}]
    return component


def _host_memory() -> dict[str, object]:
    """Lets the sidecar see the server's processes, and so read their environment as well."""
    return _patched({"shareProcessNamespace": True})


def _patched(pod: Mapping[str, object]) -> dict[str, object]:
    """A component that changes the pod of the observed vLLM or SGLang."""
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "observed"},
        "spec": {"template": {"spec": dict(pod)}},
    }
    return {
        "apiVersion": f"kustomize.config.k8s.io/{_COMPONENT['version']}",
        "kind": _COMPONENT["kind"],
        "patches": [{"patch": to_yaml(patch), "target": {"kind": "Deployment", "name": _OBSERVED}}],
    }
