"""Manifests: current, accepted by the published schemas, selected by whom they are meant for."""

import copy
import re
from typing import Any

import pytest
import yaml

from deploy.__main__ import main
from deploy.manifests import FOLDER, KUSTOMIZATION, manifests, of_dashboards
from deploy.monitoring import RELEASE, SCRAPE_INTERVAL, SCRAPE_TIMEOUT
from kvscope_alerts.bare.packs import pack_file
from kvscope_alerts.bare.server import SERVERS, Server
from kvscope_alerts.rule import Places
from kvscope_alerts.rules import mapping
from kvscope_alerts.thresholds import FLEET_JOB, JOB
from kvscope_exporter.catalogue import CATALOGUE
from tests.kubernetes.objects import Object, container, one, pod_of
from tests.kubernetes.schemas import API_KINDS, API_VERSIONS, OPERATOR_KINDS, problems
from tests.repo.checkout import ROOT

FILES = manifests()
OBJECTS: dict[str, Object] = {name: one(text) for name, text in FILES.items()}
KUSTOMIZE_KINDS = ("Kustomization", "Component")
WITHOUT_SCHEMA = "AlertmanagerConfig"
"""The one kind whose schema is not among the published ones here."""
TO_APPLY = {k: v for k, v in OBJECTS.items() if v["kind"] not in KUSTOMIZE_KINDS}
OPERATOR_LABELS = {"namespace", "pod", "container", "service", "job", "instance", "endpoint"}
"""Labels that the operator gives to every target."""


def of_kind(kind: str) -> dict[str, Object]:
    return {name: content for name, content in OBJECTS.items() if content["kind"] == kind}


def endpoints_of(kind: str) -> dict[str, Any]:
    """The only endpoint of each monitor of that kind."""
    key = "podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"
    found = {}
    for name, monitor in of_kind(kind).items():
        (found[name],) = monitor["spec"][key]
    return found


def test_the_committed_files_are_what_the_generator_writes() -> None:
    committed = {str(p.relative_to(FOLDER)): p.read_text() for p in FOLDER.rglob("*.yaml")}
    assert committed == FILES, "run `python -m deploy`"
    assert KUSTOMIZATION.read_text() == of_dashboards(), "run `python -m deploy`"


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.parametrize("name", TO_APPLY)
def test_the_published_schema_accepts_it(name: str, version: str) -> None:
    if OBJECTS[name]["kind"] != WITHOUT_SCHEMA:
        assert problems(OBJECTS[name], version) == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("overlays/vllm/deployment.yaml", ("spec", "replica"), 1),
        ("overlays/vllm/deployment.yaml", ("spec", "template", "spec", "hostPid"), True),
        ("overlays/vllm/deployment.yaml", ("spec", "replicas"), "one"),
        ("overlays/vllm/service.yaml", ("spec", "port"), 8000),
        ("base/podmonitor.yaml", ("spec", "endpoints"), []),
        ("base/podmonitor.yaml", ("spec", "podMetricsEndpoints", 0, "interval"), "5 s"),
        ("base/servicemonitor.yaml", ("spec", "endpoints", 0, "relabelings", 0, "action"), "drop!"),
        ("base/prometheusrule.yaml", ("spec", "groups", 0, "rules", 0, "for"), "soon"),
        ("base/prometheusrule.yaml", ("spec", "groups", 0, "rule"), []),
    ],
)
def test_the_schema_refuses_what_the_api_would(
    name: str, path: tuple[str | int, ...], value: object
) -> None:
    broken: Any = copy.deepcopy(OBJECTS[name])
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    for version in API_VERSIONS:
        assert len(problems(broken, version)) == 1


def test_every_kind_that_is_written_has_a_schema() -> None:
    kinds = {content["kind"] for content in TO_APPLY.values()}
    assert {*kinds, "ConfigMap", "Pod"} == {*API_KINDS, *OPERATOR_KINDS, WITHOUT_SCHEMA}


def test_the_rules_are_those_of_the_rule_file() -> None:
    spec = OBJECTS["base/prometheusrule.yaml"]["spec"]
    assert spec == mapping(places=Places(grafana=""))


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)
def test_the_rules_of_a_pack_are_those_of_its_file(server: Server) -> None:
    content = OBJECTS[f"components/{server.word}-rules/prometheusrule.yaml"]
    assert content["spec"] == yaml.safe_load(pack_file(server, places=Places(grafana="")))
    assert content["metadata"]["name"] != OBJECTS["base/prometheusrule.yaml"]["metadata"]["name"]


def test_nothing_leads_to_this_machine() -> None:
    # The server, which is in the pod of the sidecar.
    of_the_pod = re.compile(
        r"--url=(vllm=http://127\.0\.0\.1:8000|sglang=http://127\.0\.0\.1:30000)\b"
    )
    for name, text in FILES.items():
        assert "localhost" not in text, name
        assert "127.0.0.1" not in of_the_pod.sub("", text), name


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_a_monitor_has_the_jobs_of_the_stack(kind: str) -> None:
    config: Any = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    names = {job["job_name"] for job in config["scrape_configs"]}
    for name, endpoint in endpoints_of(kind).items():
        times = endpoint["interval"], endpoint["scrapeTimeout"]
        assert times == (SCRAPE_INTERVAL, SCRAPE_TIMEOUT)
        job = FLEET_JOB if name.startswith("components/fleet/") else JOB
        assert {"targetLabel": "job", "replacement": job} in endpoint["relabelings"]
        assert job in names


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_no_label_of_a_target_hides_one_of_our_pages(kind: str) -> None:
    ours = {label for metric in CATALOGUE for label in metric.labels}
    assert "endpoint" in ours, "then nothing need be dropped"
    for endpoint in endpoints_of(kind).values():
        dropped = {r["regex"] for r in endpoint["relabelings"] if r.get("action") == "labeldrop"}
        set_here = {r["targetLabel"] for r in endpoint["relabelings"] if "targetLabel" in r}
        assert not ours & ((OPERATOR_LABELS | set_here) - dropped)


def test_the_operator_and_grafana_select_what_is_meant_for_them() -> None:
    for kind in OPERATOR_KINDS:
        for content in of_kind(kind).values():
            assert content["metadata"]["labels"]["release"] == RELEASE
    assert one(of_dashboards())["generatorOptions"]["labels"]["grafana_dashboard"] == "1"


def test_the_policy_opens_the_sidecars_port_alone() -> None:
    policy = OBJECTS["components/network-policy/networkpolicy.yaml"]
    (rule,) = policy["spec"]["ingress"]
    sidecar = container(OBJECTS["overlays/vllm/deployment.yaml"], "kvscope")
    ports = [{"protocol": "TCP", "port": one["containerPort"]} for one in sidecar["ports"]]
    assert rule["ports"] == ports
    assert len(rule["from"]) == 2
    assert "namespace" not in policy["metadata"], "one for each namespace with observed pods"
    others = OBJECTS["components/other-ports/networkpolicy.yaml"]
    assert others["metadata"]["name"] != policy["metadata"]["name"], "both may be in a namespace"


def test_a_file_with_an_image_of_ours_says_that_it_has_to_be_named() -> None:
    named = {name for name, text in FILES.items() if re.search(r"image: \"?kvscope", text)}
    said = {name for name, text in FILES.items() if "No image of kvscope is published" in text}
    assert named == said
    assert len(named) == 4


def test_each_workload_is_scraped_by_one_monitor() -> None:
    (pods,) = (m["spec"] for m in of_kind("PodMonitor").values())
    monitors = [m["spec"] for m in of_kind("ServiceMonitor").values()]
    scraped = {}
    for name, deployment in of_kind("Deployment").items():
        pod = pod_of(deployment)
        labels = pod["metadata"]["labels"].items()
        of_pod = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        ports = {p["name"] for c in of_pod for p in c.get("ports", ())}
        by = []
        if pods["selector"]["matchLabels"].items() <= labels:
            by += [e["port"] for e in pods["podMetricsEndpoints"] if e["port"] in ports]
        service = OBJECTS[name.replace("deployment", "service")]
        assert service["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        offered = {port["name"] for port in service["spec"]["ports"]}
        for services in monitors:
            if services["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items():
                by += [e["port"] for e in services["endpoints"] if e["port"] in offered]
        scraped[name] = by
    assert scraped == {
        "components/fleet/deployment.yaml": ["http"],
        "overlays/engine/deployment.yaml": ["http"],
        "overlays/sglang/deployment.yaml": ["kvscope"],
        "overlays/vllm/deployment.yaml": ["kvscope"],
    }


def test_the_generator_takes_addresses_and_the_release_and_clears_what_it_wrote(
    tmp_path: Any,
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "dashboard-old.yaml").write_text("# Written by `python -m deploy`: gone since\n")
    (base / "mine.yaml").write_text("kind: ConfigMap\n")
    main(["--out", str(tmp_path), "--release", "watch", "--grafana", "https://g.example"])
    assert not (base / "dashboard-old.yaml").exists()
    assert (base / "mine.yaml").exists()
    rule = one((base / "prometheusrule.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "watch"
    urls = [
        r["annotations"]["dashboard_url"]
        for group in rule["spec"]["groups"]
        for r in group["rules"]
        if "alert" in r
    ]
    assert urls
    assert all(url.startswith("https://g.example/d/") for url in urls)


def test_the_generator_takes_the_jobs_of_other_servers(tmp_path: Any) -> None:
    main(["--out", str(tmp_path), "--job", "vllm=llm-.*"])
    rules = (tmp_path / "components/vllm-rules/prometheusrule.yaml").read_text()
    assert 'job=~"llm-.*"' in rules
    assert 'job=~"vllm"' not in rules
    assert 'job=~"sglang"' in (tmp_path / "components/sglang-rules/prometheusrule.yaml").read_text()


@pytest.mark.parametrize("given", ["vllm", "vllm=", "triton=x"])
def test_a_job_of_no_server_is_refused(given: str, tmp_path: Any) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--job", given])


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_the_patch_for_nvml_is_for_the_sidecar_of_the_server(server: str) -> None:
    (entry,) = OBJECTS["components/nvml/kustomization.yaml"]["patches"]
    patch = yaml.safe_load(entry["patch"])
    deployment = OBJECTS[f"overlays/{server}/deployment.yaml"]
    assert re.fullmatch(entry["target"]["name"], deployment["metadata"]["name"])
    (patched,) = pod_of(patch)["spec"]["initContainers"]
    assert container(deployment, patched["name"])["args"][0] == "sidecar"


def test_the_fleet_finds_every_pod_with_a_sidecar_by_a_headless_service() -> None:
    deployment = OBJECTS["components/fleet/deployment.yaml"]
    service = OBJECTS["components/fleet/sidecars.yaml"]
    (arguments,) = (c["args"] for c in pod_of(deployment)["spec"]["containers"])
    (port,) = service["spec"]["ports"]
    assert f"--sidecars-at={service['metadata']['name']}:{port['port']}" in arguments
    assert service["spec"]["clusterIP"] == "None"
    for name in ("vllm", "sglang"):
        observed = OBJECTS[f"overlays/{name}/deployment.yaml"]
        labels = pod_of(observed)["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
        ports = {p["name"]: p["containerPort"] for p in container(observed, "kvscope")["ports"]}
        # By number: only newer versions look for a named port among init containers.
        assert port["targetPort"] == port["port"] == ports["kvscope"]
