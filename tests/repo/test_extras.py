"""A sidecar needs few packages: commands work without the extras, and say which one they lack."""

import json
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT

MOST_DEPENDENCIES = 9
OF_EXTRAS = (
    "grafana_foundation_sdk",
    *("bcrypt", "duckdb", "google", "matplotlib", "numpy", "opentelemetry.exporter", "perfetto"),
    *("opentelemetry.sdk", "requests", "textual", "torch", "transformers", "zmq"),
)
"""Packages that `pip install kvscope` does not bring."""
WITHOUT = f"""
import sys
for name in {OF_EXTRAS}:
    sys.modules[name] = None
"""
RUN = f"{WITHOUT}\nfrom kvscope.cli import main\nsys.argv[0] = 'kvscope'\nmain()"


def kvscope(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_sidecar_has_few_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= MOST_DEPENDENCIES


def test_every_command_and_every_module_of_a_sidecar_loads_without_the_extras() -> None:
    code = f"""{WITHOUT}
from typer.testing import CliRunner
from kvscope.cli.app import app
import kvscope_exporter.sidecar.sidecar
import kvscope_exporter.sidecar.assembly
import kvscope_exporter.web.sidecar_app
import kvscope_exporter.web.access
import kvscope_exporter.fleet.fleet
import kvscope.replay.past
import kvscope.plan.form
runner = CliRunner()
names = [command.name or command.callback.__name__ for command in app.registered_commands]
names += [group.name for group in app.registered_groups]
for name in names:
    result = runner.invoke(app, [name.replace("_", "-"), "--help"])
    assert result.exit_code == 0, (name, result.output)
print(len(names))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


def test_a_sidecar_serves_its_page_without_the_extras(tmp_path: Path) -> None:
    events = f"a=ipc://{tmp_path}/a.sock"
    arguments = ("sidecar", "--port", "0", "--no-gpu", "--events", events, "--keep", "0")
    sidecar = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        assert sidecar.stderr is not None
        line = next(line for line in sidecar.stderr if "targets: " in line)
        url = line.split("targets: ")[1].strip()
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert json.load(answer)
        with urllib.request.urlopen(url.replace("/targets", "/metrics"), timeout=30) as answer:
            assert b"kvscope_source_up" in answer.read()
    finally:
        sidecar.terminate()
        sidecar.communicate(timeout=30)


HASHED = "$2b$10$" + "a" * 53
SIDECAR = ("sidecar", "--events", "a=ipc:///tmp/a.sock")
PLAN = ("plan", "--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--params", "1e9")
OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ((*SIDECAR, "--otlp-endpoint", "http://a:1"), {}, ".[otlp]"),
        ((*SIDECAR, "--otlp-traces-endpoint", "http://a:1"), {}, ".[otlp]"),
        (SIDECAR, {OTLP: "http://a:1"}, ".[otlp]"),
        (("sidecar", "--check", "--config", "kv.yaml"), {}, ".[kv-events]"),
        ((*SIDECAR, "--web-config-file", "web.yml"), {}, ".[basic-auth]"),
        (("rec", "export", "a.kvsr", "--perfetto", "a.pftrace"), {}, ".[export]"),
        (("rec", "export", "a.kvsr", "--parquet", "folder"), {}, ".[export]"),
        (("whatif", "a.jsonl", "--plot", "a.svg"), {}, ".[plot]"),
        ((*PLAN, "--plot", "a.svg"), {}, ".[plot]"),
        (("engine", "serve", "demo"), {}, ".[engine]"),
    ],
)
def test_what_is_missing_is_said_at_the_start_with_the_extra_that_has_it(
    arguments: tuple[str, ...], environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "kv.yaml").write_text(
        "servers:\n- name: a\n  kind: vllm\n  kv_events: [{endpoint: 'tcp://127.0.0.1:5557'}]\n"
    )
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{me: {HASHED}}}\n")
    (tmp_path / "a.jsonl").write_text("{}\n")
    files = {text for text in arguments if "." in text and ":" not in text}
    done = kvscope(
        *(str(tmp_path / text) if text in files else text for text in arguments), **environment
    )
    assert done.returncode == 2, done.stderr
    assert f"pip install '{said}'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
