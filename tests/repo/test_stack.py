"""The compose stack, without a daemon: pinned, on loopback, mounts there, parts in accord."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from kvscope_alerts.bare.server import SERVERS
from tests.repo.checkout import ROOT

DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
GPU_TEXT = (ROOT / "compose.gpu.yaml").read_text()
VLLM_GPU_TEXT = (ROOT / "compose.vllm-gpu.yaml").read_text()
SGLANG_TEXT = (ROOT / "compose.sglang-gpu.yaml").read_text()
BARE_TEXT = (ROOT / "compose.bare.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SGLANG: dict[str, Any] = yaml.safe_load(SGLANG_TEXT)
SERVICES: dict[str, Any] = {**COMPOSE["services"], **SGLANG["services"]}
VOLUMES = {*COMPOSE["volumes"], *SGLANG["volumes"]}
_SETTING = re.compile(r"\$\{(\w+):-([^}]*)\}")
_ADDED = GPU_TEXT + VLLM_GPU_TEXT + SGLANG_TEXT + BARE_TEXT
DEFAULTS = dict(_SETTING.findall(_ADDED + COMPOSE_TEXT))
PROFILES = {profile for service in SERVICES.values() for profile in service.get("profiles", [])}
DIFFERS = "ENGINE_MEMORY"
"""A setting whose default the GPU overlay changes."""
WITHOUT_CLIENT = {"otel-collector", "tempo"}
"""Their images have no program that could run a health check."""
WRITES_ITS_ROOT = {"grafana", "tempo", "vllm", "sglang"}
"""They cannot be started where this was written, so they have never been seen to do with less."""
GPU_OVERLAYS = {
    "compose.gpu.yaml": {"engine"},
    "compose.vllm-gpu.yaml": {"vllm", "vllm-sidecar"},
    "compose.sglang-gpu.yaml": {"sglang", "sglang-sidecar"},
}
"""The services that each of them puts on a GPU."""
OVERLAYS = (*GPU_OVERLAYS, "compose.bare.yaml")


def resolved(text: str) -> str:
    """As compose reads it where nothing is set."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)


def run(*command: str, **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_pinned_bounded_and_checked(service: str) -> None:
    settings = SERVICES[service]
    name, _, tag = resolved(settings["image"]).partition(":")
    assert name
    assert re.match(r"v?\d+\.\d+\.\d+$", tag), f"{settings['image']}: no exact tag"
    assert settings["mem_limit"]
    if service in WITHOUT_CLIENT:
        assert "healthcheck" not in settings
    else:
        assert settings["healthcheck"]["test"][0] == "CMD", "needs no shell in the image"
    assert settings["restart"] == "unless-stopped"
    assert settings["logging"]["options"]["max-size"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(service: str) -> None:
    settings = SERVICES[service]
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert settings.get("read_only", False) is (service not in WRITES_ITS_ROOT)


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_waits_for_a_health_that_is_never_reported(service: str) -> None:
    for name, wait in SERVICES[service].get("depends_on", {}).items():
        expected = "service_started" if name in WITHOUT_CLIENT else "service_healthy"
        assert wait["condition"] == expected
        others = set(SERVICES[name].get("profiles", []))
        assert not others or others == set(SERVICES[service].get("profiles", []))


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_on_loopback(service: str) -> None:
    for port in SERVICES[service].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", resolved(port)), port


@pytest.mark.parametrize("service", SERVICES)
def test_mounted_files_exist_and_are_read_only(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == ["ro"], volume
        else:
            assert source in VOLUMES


def test_the_example_environment_names_every_setting_with_its_default() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    shared = {name: default for name, default in DEFAULTS.items() if name != DIFFERS}
    assert example == shared
    assert f"# {DIFFERS}=" in lines, "copied as it is, it must not override one of the two files"


def test_the_profiles_are_those_of_the_documents() -> None:
    page = (ROOT / "docs" / "guides" / "stack.md").read_text()
    assert {"demo", "fleet", "tracing", "vllm"} == PROFILES
    for profile in PROFILES:
        assert f"--profile {profile}" in page
        assert f"`{profile}`" in COMPOSE_TEXT.partition("services:")[0]


def test_the_start_of_an_engine_is_watched() -> None:
    for service in ("prometheus", "alertmanager", "grafana"):
        assert "engine" not in SERVICES[service].get("depends_on", {})


@pytest.mark.parametrize("name", GPU_OVERLAYS)
def test_an_overlay_for_gpus_gives_its_services_one(name: str) -> None:
    services = yaml.safe_load((ROOT / name).read_text())["services"]
    on_gpu = {name for name, settings in services.items() if "deploy" in settings}
    assert on_gpu == GPU_OVERLAYS[name]
    assert services.keys() - on_gpu <= {"sglang-observer"}
    for settings in (services[each] for each in on_gpu):
        (device,) = settings["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia"


def test_who_may_only_send_requests_cannot_release_the_gpu() -> None:
    """Requests that change something are answered on the metrics port, which is for this machine
    alone."""
    engine = yaml.safe_load(GPU_TEXT)["services"]["engine"]
    (port,) = engine["ports"]
    listens = resolved(port).rpartition(":")[2]
    assert f"--metrics-port={listens}" in engine["command"]
    assert resolved(port).startswith("127.0.0.1:")
    assert not any(entry.endswith(f":{listens}") for entry in SERVICES["engine"]["ports"])


@pytest.mark.parametrize("server", [server.word for server in SERVERS])
def test_rules_for_servers_without_kvscope_are_mounted_where_prometheus_looks(server: str) -> None:
    (service,) = yaml.safe_load(BARE_TEXT)["services"].items()
    assert service[0] == "prometheus"
    mounts = [
        resolved(volume.replace("${BARE_SERVER:-vllm}", server)) for volume in service[1]["volumes"]
    ]
    rules, targets = (mount.split(":") for mount in mounts)
    assert (ROOT / rules[0]).exists()
    assert (ROOT / targets[0]).exists()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    folder = PurePosixPath("/etc/prometheus")
    assert any(PurePosixPath(rules[1]).match(str(folder / glob)) for glob in config["rule_files"])
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == server)
    ((glob,),) = (each["files"] for each in job["file_sd_configs"])
    assert PurePosixPath(targets[1]).match(str(folder / glob))


def test_the_example_of_targets_is_a_service_of_the_stack() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "vllm.targets.yml").read_text())
    (target,) = group["targets"]
    service, _, port = target.partition(":")
    assert any(entry.endswith(f":{port}") for entry in SERVICES[service]["ports"])


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_sidecar_reads_the_sockets_that_the_observer_makes(name: str) -> None:
    server, sidecar = SERVICES[name], SERVICES[f"{name}-sidecar"]
    observer = SERVICES[f"{name}-observer"]
    plugin, sockets = (server["environment"][n] for n in ("PYTHONPATH", "KVSCOPE_OBSERVER_DIR"))
    assert f"kvscope observer install {plugin} " in observer["command"][0]
    assert f"--events={name}=ipc://{sockets}/*" in sidecar["command"]
    assert server["user"] == sidecar["user"], "sockets are private to the user of the server"
    assert server["depends_on"] == {f"{name}-observer": {"condition": "service_healthy"}}


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_what_a_server_of_the_stack_imports_is_written_by_no_other_service(server: str) -> None:
    mounted = {name: SERVICES[name].get("volumes", ()) for name in SERVICES}
    observer = f"{server}-observer"
    assert f"{observer}:/kvscope/observer" in mounted[observer]
    assert f"{observer}:/kvscope/observer:ro" in mounted[server]
    others = mounted.keys() - {observer, server}
    assert not [v for name in others for v in mounted[name] if v.startswith(f"{observer}:")]
    assert f"{server}-sockets:/kvscope/run:ro" in mounted[f"{server}-sidecar"]


def test_a_health_check_of_sglang_generates_no_token() -> None:
    """It would be a request like any other, of an idle server every five seconds."""
    variables = SERVICES["sglang"]["environment"]
    assert variables["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"


def test_images_agree_with_the_dockerfile_and_the_constraints() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", dockerfile, re.MULTILINE))
    extras = arguments.pop("EXTRAS").split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    assert arguments == {name: DEFAULTS[name] for name in arguments}
    assert arguments["TORCH"] in (ROOT / "constraints.txt").read_text().splitlines()
    for service in ("engine", "load", "vllm-sidecar", "sglang-sidecar"):
        assert f"AS {SERVICES[service]['build']['target']}\n" in dockerfile


def test_the_dockerfile_stays_buildable_by_older_builders() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for newer in ("# syntax=", "--link", "<<"):
        assert newer not in dockerfile
    assert re.search(r"^USER \d+$", dockerfile, re.MULTILINE), "runs as root"
    assert "HEALTHCHECK" in dockerfile


def test_the_engine_can_compile_what_computes_attention_and_load_it() -> None:
    """Otherwise it is plain torch on a CPU, and with Triton the first step on a GPU fails."""
    engine = (ROOT / "Dockerfile").read_text().partition("FROM base AS engine")[2]
    assert re.search(r"apt-get install .*\bgcc libc6-dev\b", engine)
    (cache,) = re.findall(r"^ENV TRITON_CACHE_DIR=(\S+)$", engine, re.MULTILINE)
    (writable,) = SERVICES["engine"]["tmpfs"]
    folder, _, options = writable.partition(":")
    assert cache.startswith(f"{folder}/")
    assert "exec" in options.split(","), "Docker mounts a tmpfs with noexec"


def test_the_image_installs_no_triton_of_its_own(tmp_path: Path) -> None:
    """Torch brings the one that it was built with; with torch for CPUs it is a gigabyte unused."""
    text = (ROOT / "Dockerfile").read_text()
    (program,) = re.findall(r"python -c '(.+)'$", text, re.MULTILINE)
    program = program.replace("/tmp/", f"{tmp_path}/").replace("""'"$EXTRAS"'""", "otlp,top")
    run(sys.executable, "-c", program, cwd=ROOT)
    names = (tmp_path / "engine.txt").read_text().splitlines()
    assert any(name.startswith("transformers") for name in names)
    assert not any(name.startswith("triton") for name in names)


def test_prometheus_scrapes_services_of_the_stack() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    jobs = config["scrape_configs"] + config["alerting"]["alertmanagers"]
    targets = {
        t for job in jobs for group in job.get("static_configs", ()) for t in group["targets"]
    }
    discovered = [sd["url"] for job in jobs for sd in job.get("http_sd_configs", ())]
    assert discovered == [f"http://{name}-sidecar:8010/targets" for name in ("vllm", "sglang")]
    targets |= {url.split("/")[2] for url in discovered}
    assert {target.split(":")[0] for target in targets} <= {*SERVICES, "localhost"}
    for target in targets:
        host, port = target.split(":")
        published = SERVICES["prometheus" if host == "localhost" else host]["ports"]
        assert any(entry.endswith(f":{port}") for entry in published), target


def test_grafana_reads_that_prometheus_at_its_scrape_interval() -> None:
    folder = DEPLOY / "grafana" / "provisioning" / "datasources"
    (source,) = yaml.safe_load((folder / "prometheus.yml").read_text())["datasources"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert source["url"] == "http://prometheus:9090"
    assert source["uid"] == "kvscope-prometheus"
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_grafana_shows_our_dashboards_and_begins_with_the_overview() -> None:
    grafana = SERVICES["grafana"]
    provisioning = DEPLOY / "grafana" / "provisioning" / "dashboards" / "kvscope.yml"
    (provider,) = yaml.safe_load(provisioning.read_text())["providers"]
    folder = provider["options"]["path"]
    assert f"./dashboards:{folder}:ro" in grafana["volumes"]
    assert provider["allowUiUpdates"] is False
    environment = grafana["environment"]
    home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    overview = json.loads((ROOT / "dashboards" / Path(home).name).read_text())
    assert Path(home).parent == Path(folder)
    assert overview["uid"] == "kvscope-overview"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_a_trace_goes_from_the_engine_to_the_collector_to_tempo_to_grafana() -> None:
    collector = yaml.safe_load((DEPLOY / "otel-collector" / "config.yaml").read_text())
    page = (ROOT / "docs" / "guides" / "stack.md").read_text()
    (told,) = re.findall(r"OTLP_TRACES_ENDPOINT=http://otel-collector:(\d+)", page)
    listens = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert listens.endswith(f":{told}")
    assert DEFAULTS["OTLP_TRACES_ENDPOINT"] == "", "without the profile no listener"
    option = SERVICES["engine"]["environment"]["KVSCOPE_ENGINE_SERVE_OTLP_TRACES_ENDPOINT"]
    assert option == "${OTLP_TRACES_ENDPOINT:-}"
    tempo = yaml.safe_load((DEPLOY / "tempo" / "tempo.yaml").read_text())
    exporter = collector["exporters"]["otlp_grpc/tempo"]["endpoint"]
    received = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert exporter == f"tempo:{received.rpartition(':')[2]}"
    assert collector["service"]["pipelines"]["traces"]["exporters"] == ["otlp_grpc/tempo"]
    sources = DEPLOY / "grafana" / "provisioning" / "datasources"
    (source,) = yaml.safe_load((sources / "tempo.yml").read_text())["datasources"]
    assert source["url"] == f"http://tempo:{tempo['server']['http_listen_port']}"
    (metrics,) = yaml.safe_load((sources / "prometheus.yml").read_text())["datasources"]
    (link,) = metrics["jsonData"]["exemplarTraceIdDestinations"]
    assert link == {"name": "trace_id", "datasourceUid": source["uid"]}


@pytest.mark.promtool
def test_promtool_accepts_the_configuration_with_our_rules(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus" / "prometheus.yml", tmp_path)
    rules = tmp_path / "rules"  # where the stack mounts them
    rules.mkdir()
    for path in (ROOT / "alerts").glob("*.rules.yml"):  # with compose.bare.yaml one of the others
        shutil.copy(path, rules)
    run("promtool", "check", "config", "--lint=all", str(tmp_path / "prometheus.yml"))


@pytest.mark.amtool
def test_amtool_accepts_the_configuration_and_routes_alerts() -> None:
    config = str(DEPLOY / "alertmanager" / "alertmanager.yml")
    run("amtool", "check-config", config)
    receiver = "--verify.receivers=page-only"
    run("amtool", "config", "routes", "test", f"--config.file={config}", receiver, "severity=info")


@pytest.mark.parametrize("overlays", [(), *((name,) for name in OVERLAYS)], ids="-".join)
@pytest.mark.parametrize("profiles", [(), *((name,) for name in sorted(PROFILES)), tuple(PROFILES)])
def test_compose_accepts_its_files(overlays: tuple[str, ...], profiles: tuple[str, ...]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in DEFAULTS}
    probe = ["docker", "compose", "version", "--format", "json"]
    docker = shutil.which("docker")
    answer = subprocess.run(probe, capture_output=True, check=False) if docker else None
    if answer is None or answer.returncode != 0:
        pytest.skip("no docker compose on this machine")
    assert json.loads(answer.stdout)["version"]
    files = [f"--file={name}" for name in ("docker-compose.yml", *overlays)]
    chosen = [f"--profile={profile}" for profile in profiles]
    run("docker", "compose", *files, *chosen, "config", "--quiet", cwd=ROOT, env=environment)


def test_the_compose_specification_accepts_the_files() -> None:
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    run(*command, *(str(ROOT / name) for name in ("docker-compose.yml", *OVERLAYS)))
