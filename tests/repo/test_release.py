"""The parts of a release agree; `make release-check` builds and installs it."""

import re
import tomllib
from pathlib import Path

import yaml

from kvscope_events import __version__
from tests.kubernetes.schemas import API_VERSIONS
from tests.repo.checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_place_names_the_same_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "kvscope" / "Chart.yaml").read_text())
    plugin = yaml.safe_load((ROOT / "deploy" / "helm" / "inject" / "plugin.yaml").read_text())
    assert {chart["version"], chart["appVersion"], plugin["version"]} == {__version__}
    for name in (".env.example", "docker-compose.yml"):
        tags = re.findall(r"kvscope(?:-exporter)?:(\d[\w.]*)", (ROOT / name).read_text())
        assert set(tags) == {__version__}, name
    assert f"\n## {__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_place_names_the_same_oldest_version_that_is_supported() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    oldest = dict(re.findall(r"^\| (\w+) \| (\d+(?:\.\d+)*) and newer", page, re.MULTILINE))
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "kvscope" / "Chart.yaml").read_text())
    guides = ROOT / "docs" / "operate"
    boards, alerts = ((guides / name).read_text() for name in ("dashboards.md", "alerts.md"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["kubeVersion"] == f">={oldest['Kubernetes']}.0-0"
    assert oldest["Kubernetes"] == API_VERSIONS[0]
    assert f"for Grafana {oldest['Grafana']} and newer" in boards
    assert f"Prometheus {oldest['Prometheus']}." in alerts
    assert project["requires-python"] == f">={oldest['Python']}"


def test_neither_distribution_declares_a_version_of_its_own() -> None:
    for folder in (ROOT, ROOT / "kvscope_events"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert "version" not in project
        assert project["dynamic"] == ["version"]


def test_the_base_install_asks_for_nothing_of_the_engine() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[;]", line)[0] for line in project["dependencies"]}
    engine = {re.split(r"[<>=\[;]", line)[0] for line in project["optional-dependencies"]["engine"]}
    assert not names & (engine - {"jinja2"})


def test_the_image_has_what_the_build_of_the_wheel_reads() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for stage in re.findall(r"COPY LICENSE .*?RUN", dockerfile, re.DOTALL):
        assert "hatch_build.py" in stage
        assert {p for p in wheel["packages"] if f"COPY {p} {p}\n" not in stage} == set()
        for path in map(Path, wheel["force-include"]):
            assert f"COPY {path} {path.parent}/\n" in stage
        assert "COPY dashboards/*.json dashboards/" in stage


def test_jobs_of_workflows_have_a_time_limit_and_no_rights_by_default() -> None:
    assert WORKFLOWS
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}, path.name
        for name, job in workflow["jobs"].items():
            assert "timeout-minutes" in job, f"{path.name}: {name}"
            needed = set(re.findall(r"needs\.([a-z-]+)\.", str(job)))
            needs = job.get("needs", [])
            assert needed <= {*([needs] if isinstance(needs, str) else needs)}, name


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        assert set(re.findall(r"run: make ([a-z-]+)", path.read_text())) <= targets, path.name
