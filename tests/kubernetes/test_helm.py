"""The Helm chart: linted, and rendered to the objects of the kustomize base with the values in."""

import base64
import gzip
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deploy.manifests import DASHBOARDS, FOLDER
from kvscope.cli.app import app
from kvscope_alerts.bare.limits import Settings
from kvscope_alerts.bare.packs import pack_file
from kvscope_alerts.bare.server import SERVERS, Server
from kvscope_alerts.edits import Edits
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rule import Places
from kvscope_alerts.rules import mapping
from kvscope_alerts.yaml_text import to_yaml
from tests.inject.odd_inputs import SEVERAL_CONTAINERS
from tests.kubernetes.objects import Object, container, output, parsed
from tests.kubernetes.schemas import API_VERSIONS, problems
from tests.repo.checkout import ROOT

pytestmark = [pytest.mark.helm, pytest.mark.nightly]
CHART = str(ROOT / "deploy" / "helm" / "kvscope")


def rendered(*settings: str) -> dict[tuple[str, str], Object]:
    flags = [f"--set={setting}" for setting in settings]
    return parsed(output("helm", "template", "kv", CHART, "--namespace=watch", *flags))


def test_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in output("helm", "lint", "--strict", CHART)


@pytest.mark.kubectl
def test_with_its_own_values_it_is_the_base_in_the_releases_namespace() -> None:
    expected = parsed(output("kubectl", "kustomize", str(FOLDER / "base")))
    for content in expected.values():
        content["metadata"]["namespace"] = "watch"
        content["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    assert rendered() == expected


def test_a_packaged_chart_has_the_boards_and_nothing_of_their_generators(tmp_path: Path) -> None:
    output("helm", "package", CHART, "--destination", str(tmp_path))
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as chart:
        packed = [Path(name) for name in chart.getnames() if "/dashboards/" in name]
    assert {path.name for path in packed} == {path.name for path in DASHBOARDS.glob("*.json")}


def test_values_reach_the_objects() -> None:
    objects = rendered(
        "release=",
        "labels.team=inference",
        "grafanaUrl=https://g.example/sub",
        "namespaces={chat,search}",
        "scrapeInterval=20s",
        "detail=full",
        "sampleLimit=2000",
        "metricRelabelings[0].action=labeldrop",
        "dashboards.label=board",
        "dashboards.folder=LLM",
    )
    for content in objects.values():
        assert "release" not in content["metadata"]["labels"]
        assert content["metadata"]["labels"]["team"] == "inference"
        assert [problem for version in API_VERSIONS for problem in problems(content, version)] == []
        if content["kind"] == "ConfigMap":
            assert content["metadata"]["labels"]["board"] == "1"
            assert "grafana_dashboard" not in content["metadata"]["labels"]
            assert content["metadata"]["annotations"] == {"grafana_folder": "LLM"}
    for kind, endpoints in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        spec = objects[kind, "kvscope"]["spec"]
        assert spec["namespaceSelector"] == {"matchNames": ["chat", "search", "watch"]}
        (endpoint,) = spec[endpoints]
        assert (endpoint["interval"], spec["sampleLimit"]) == ("20s", 2000)
        assert endpoint["params"] == {"detail": ["full"]}
        assert endpoint["metricRelabelings"] == [{"action": "labeldrop"}]
    groups = objects["PrometheusRule", "kvscope"]["spec"]["groups"]
    urls = {r["annotations"]["dashboard_url"] for g in groups for r in g["rules"] if "alert" in r}
    assert all(url.startswith("https://g.example/sub/d/") for url in urls)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.word)
def test_the_rules_for_another_server_are_a_value(server: Server) -> None:
    values = f"otherServers.{server.word}"
    objects = rendered(
        f"{values}.rules=true", f"{values}.job=llm-.*", "grafanaUrl=https://g.example"
    )
    added = objects.keys() - rendered().keys()
    assert added == {("PrometheusRule", f"kvscope-{server.word}")}
    (content,) = (objects[key] for key in added)
    settings = Settings(job="llm-.*")
    expected = yaml.safe_load(pack_file(server, settings, Places(grafana="https://g.example")))
    assert content["spec"] == expected


def test_a_token_and_a_policy_are_values() -> None:
    objects = rendered(
        "podMonitor.keySecret.name=page",
        "networkPolicy.enabled=true",
        "networkPolicy.namespaces={watch,other}",
    )
    (endpoint,) = objects["PodMonitor", "kvscope"]["spec"]["podMetricsEndpoints"]
    expected = {"type": "Bearer", "credentials": {"name": "page", "key": "token"}}
    assert endpoint["authorization"] == expected
    policy = objects["NetworkPolicy", "kvscope"]
    assert [problem for version in API_VERSIONS for problem in problems(policy, version)] == []
    first = policy["spec"]["ingress"][0]["from"]
    names = [source["namespaceSelector"]["matchLabels"] for source in first[:-1]]
    assert [labels["kubernetes.io/metadata.name"] for labels in names] == ["watch", "other"]
    assert first[-1]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kvscope-fleet"}


def policies(*settings: str) -> list[Object]:
    """The chart's NetworkPolicies; one of a name may be in several namespaces."""
    flags = [f"--set={setting}" for setting in ("networkPolicy.enabled=true", *settings)]
    text = output("helm", "template", "kv", CHART, "--namespace=watch", *flags)
    found = [one for one in yaml.safe_load_all(text) if one and one["kind"] == "NetworkPolicy"]
    for one in found:
        assert [problem for version in API_VERSIONS for problem in problems(one, version)] == []
    return found


def test_a_policy_opens_the_sidecars_port_and_nothing_else_where_the_pods_are() -> None:
    found = policies("namespaces={chat,search}")
    assert [one["metadata"]["namespace"] for one in found] == ["chat", "search", "watch"]
    for one in found:
        (rule,) = one["spec"]["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": 8010}]
        assert rule["from"], "an empty one would be everyone"
        assert one["spec"]["podSelector"]["matchLabels"] == {"kvscope": "observed"}
    named = policies("namespaces={*}", "networkPolicy.podNamespaces={chat}")
    assert [one["metadata"]["namespace"] for one in named] == ["chat"]
    (own,) = policies("networkPolicy.port=9000")
    assert own["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 9000}]
    assert ("NetworkPolicy", "kvscope") not in rendered()


@pytest.mark.parametrize(
    ("port", "ranges"),
    [
        (8010, [(1, 8009), (8011, 65535)]),
        (1, [(2, 65535)]),
        (65535, [(1, 65534)]),
    ],
)
def test_other_ports_are_open_only_if_a_value_says_so(
    port: int, ranges: list[tuple[int, int]]
) -> None:
    found = policies("networkPolicy.openOtherPorts=true", f"networkPolicy.port={port}")
    assert [one["metadata"]["name"] for one in found] == ["kvscope", "kvscope-other-ports"]
    (rule,) = found[1]["spec"]["ingress"]
    assert "from" not in rule
    *tcp, udp = rule["ports"]
    assert [(one["port"], one["endPort"]) for one in tcp] == ranges
    assert udp == {"protocol": "UDP", "port": 1, "endPort": 65535}


def test_a_policy_for_all_namespaces_is_refused_with_what_to_do() -> None:
    settings = ("--set=networkPolicy.enabled=true", "--set=namespaces={*}")
    command = ["helm", "template", "kv", CHART, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "name those of the observed pods in networkPolicy.podNamespaces" in done.stderr


def test_all_namespaces_are_one_word() -> None:
    for kind in ("PodMonitor", "ServiceMonitor"):
        selector = rendered("namespaces={*}")[kind, "kvscope"]["spec"]["namespaceSelector"]
        assert selector == {"any": True}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("rules", "PrometheusRule"),
        ("podMonitor", "PodMonitor"),
        ("serviceMonitor", "ServiceMonitor"),
        ("dashboards", "ConfigMap"),
    ],
)
def test_a_part_can_be_left_out(part: str, kind: str) -> None:
    left = {key for key in rendered(f"{part}.enabled=false") if key[0] == kind}
    assert left == set()


@pytest.mark.parametrize(
    "setting",
    ["grafanaURL=x", "scrapeInterval=soon", "grafanaUrl=g.example/", "otherServers.ray=x"],
)
def test_a_value_that_cannot_be_meant_is_refused(setting: str) -> None:
    command = ["helm", "template", "kv", CHART, f"--set={setting}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert setting.partition("=")[0].rpartition(".")[2] in done.stderr


def test_single_alerts_are_values() -> None:
    rules = rendered(
        "rules.disabledAlerts={KvscopeReplicaIdle}",
        "rules.severities.KvscopeQueueStuck=warning",
        "rules.waits.KvscopeEngineDown=15m",
        "rules.pageBelowReplicas=2",
        "rules.runbooksUrl=https://wiki.example/kvscope",
    )["PrometheusRule", "kvscope"]["spec"]["groups"]
    edits = Edits.parse(
        ["KvscopeReplicaIdle"], ["KvscopeQueueStuck=warning"], ["KvscopeEngineDown=15m"]
    )
    places = Places(runbooks="https://wiki.example/kvscope", grafana="")
    expected = mapping(
        places=places, objectives=Objectives.parse(page_when="replicas<2"), edits=edits
    )
    assert rules == yaml.safe_load(to_yaml(expected))["groups"]


def test_rules_with_objectives_are_a_file_of_values(tmp_path: Path) -> None:
    settings = ("--ttft=a/b=5", "--errors=c=0.99", "--loading=a/b=60m", "--scale-to-zero=c")
    made = CliRunner().invoke(app, ["alerts", "generate", *settings, "--values"])
    (tmp_path / "rules.yaml").write_text(made.stdout)
    flags = ("--values", str(tmp_path / "rules.yaml"), "--set=rules.waits.KvscopeEngineDown=15m")
    objects = parsed(output("helm", "template", "kv", CHART, *flags))
    objectives = Objectives.parse(["a/b=5"], (), ["c=0.99"], loading=["a/b=60m"], to_zero=["c"])
    edits = Edits.parse((), (), ["KvscopeEngineDown=15m"])
    expected = mapping(places=Places(grafana=""), objectives=objectives, edits=edits)
    rules = objects["PrometheusRule", "kvscope"]["spec"]
    assert rules == yaml.safe_load(to_yaml(expected))


def test_a_release_with_everything_takes_about_half_of_what_helm_can_keep() -> None:
    """Helm keeps the chart, its values and the objects in a Secret, which holds a MiB. The aim is
    half of it, 2**19, which fewer panels reach."""
    on = ("otherServers.vllm.rules", "otherServers.sglang.rules", "alertmanagerConfig.enabled")
    switched = [f"--set={name}=true" for name in (*on, "networkPolicy.enabled")]
    objects = output("helm", "template", "kv", CHART, *switched)
    files = {
        str(path): base64.b64encode(path.read_bytes()).decode()
        for folder, _, names in os.walk(CHART, followlinks=True)
        for path in (Path(folder) / name for name in names)
        if path.suffix in (".yaml", ".json", ".tpl", ".txt")
    }
    kept = base64.b64encode(gzip.compress(json.dumps([files, objects]).encode()))
    assert len(kept) < 560_000


def test_an_alert_that_does_not_exist_is_named() -> None:
    setting = "--set=rules.disabledAlerts={KvscopeTargetDwn}"
    command = ["helm", "template", "kv", CHART, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "rules: there is no alert KvscopeTargetDwn" in done.stderr


def test_a_post_renderer_observes_the_servers_of_any_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"HELM_{place}_HOME", str(tmp_path / place.lower()))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: llm\nversion: 0.1.0\n")
    named = SEVERAL_CONTAINERS.replace("name: llama ", "name: {{ .Release.Name }} ")
    (chart / "templates" / "deployment.yaml").write_text(named)
    output("helm", "plugin", "install", str(ROOT / "deploy" / "helm" / "inject"))
    chosen = ("--post-renderer-args", "--exporter-image=registry.example.com/exporter:1")
    built = parsed(
        output("helm", "template", "mine", str(chart), "--post-renderer", "kvscope-inject", *chosen)
    )
    image = container(built["Deployment", "mine"], "kvscope")["image"]
    assert image == "registry.example.com/exporter:1"


def test_the_webhook_never_keeps_a_pod_from_being_created() -> None:
    assert not any("webhook" in name for _, name in rendered())
    objects = rendered("webhook.enabled=true", "webhook.image=r/k:1", "webhook.args={--blocks=7}")
    name = "kvscope-webhook"
    assert {kind for kind, of in objects if of == name} == {
        *("Secret", "Deployment", "PodDisruptionBudget", "Service"),
        "MutatingWebhookConfiguration",
    }
    for hook in objects["MutatingWebhookConfiguration", name]["webhooks"]:
        assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")
        assert hook["clientConfig"]["caBundle"] == objects["Secret", name]["data"]["ca.crt"]
    pod = objects["Deployment", name]["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert {"--exporter-image=r/k:1", "--blocks=7"} <= {*arguments}
    for version in API_VERSIONS:
        assert problems(objects["Deployment", name], version) == []
    issued = rendered("webhook.enabled=true", "webhook.image=i", "webhook.certManager.enabled=true")
    assert ("Secret", name) not in issued
    assert issued["Certificate", name]["spec"]["secretName"] == name
    with pytest.raises(AssertionError, match=r"webhook\.image"):
        rendered("webhook.enabled=true")
