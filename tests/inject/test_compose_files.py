"""Services of Compose files are observed, and given back byte for byte."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.inject.pod import PLUGIN_FOLDER, SOCKETS_FOLDER
from tests.inject.run import run

MAPPING = """\
# our stack
name: llm
services:
  web:
    image: nginx:1.29
    depends_on: [llama]
  llama: # the model
    image: vllm/vllm-openai:v0.32.0
    profiles: [gpu]
    command: --model Qwen/Qwen3-0.6B --port 8001
    environment:
      PYTHONPATH: /opt/ours
      VLLM_PLUGINS: "lora"
      HF_TOKEN: ${HF_TOKEN:-}
    networks:
      inner:
    depends_on:
      db: {condition: service_healthy}
    volumes:
      - models:/models
  db:
    image: postgres:18

networks:
  inner:

volumes:
  models:
"""

LIST = """\
services:
    one:
        image: ours/sglang
        user: "1000:1000"
        entrypoint: ["python3", "-m", "sglang.launch_server"]
        command: ["--model-path", "m", "--host=0.0.0.0", "--enable-metrics"]
        environment:
            - PYTHONPATH=/opt/ours
            - SGLANG_PLUGINS=a,b
    two:
        image: vllm/vllm-openai-cpu
        network_mode: host
        command: ["m", "--host", "127.0.0.1"]"""

WINDOWS = MAPPING.replace("\n", "\r\n")
JSON = '{"services": {"v": {"image": "vllm/vllm-openai", "command": ["m"], "environment": {}}}}\n'
NAMED = {"mapping": MAPPING, "list": LIST, "windows": WINDOWS, "json": JSON}
each = pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())


def services(text: str) -> Any:
    return yaml.safe_load(text)["services"]


@each
def test_removing_gives_the_file_back(text: str) -> None:
    once = run(text)
    assert once.code == 0, once.said
    rest = iter(once.text)
    assert all(character in rest for character in text), "what was there is there, in order"
    again = run(once.text)
    assert (again.text, again.code) == (once.text, 0)
    back = run(once.text, "--remove")
    assert (back.text, back.code) == (text, 0)


def test_the_specification_accepts_the_result(tmp_path: Path) -> None:
    files = []
    for name, text in NAMED.items():
        (tmp_path / f"{name}.yaml").write_text(run(text).text)
        files.append(str(tmp_path / f"{name}.yaml"))
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_server_loads_the_observer_beside_what_it_has() -> None:
    llama = services(run(MAPPING).text)["llama"]
    assert llama["environment"]["PYTHONPATH"] == f"{PLUGIN_FOLDER}:/opt/ours"
    assert llama["environment"]["VLLM_PLUGINS"] == "lora,kvscope"
    assert llama["depends_on"].keys() == {"db", "llama-kvscope-observer"}
    one = services(run(LIST).text)["one"]
    assert one["environment"] == [
        f"PYTHONPATH={PLUGIN_FOLDER}:/opt/ours",
        "SGLANG_PLUGINS=a,b,kvscope",
        f"KVSCOPE_OBSERVER_DIR={SOCKETS_FOLDER}",
    ]


def test_a_sidecar_reaches_its_server_and_has_its_user_and_a_port_of_its_own() -> None:
    of = services(run(MAPPING).text)["llama-kvscope"]
    assert "--url=vllm=http://llama:8001" in of["command"]
    assert (of["networks"], of["profiles"], of["user"]) == (["inner"], ["gpu"], "0")
    of = services(run(LIST).text)
    first, second = of["one-kvscope"], of["two-kvscope"]
    assert "--url=sglang=http://one:30000" in first["command"]
    assert (first["user"], first["ports"]) == ("1000", ["127.0.0.1:8010:8010"])
    assert "--url=vllm=http://127.0.0.1:8000" in second["command"]
    assert (second["network_mode"], second.get("ports")) == ("host", None)
    assert "--port=8011" in second["command"]


def test_a_server_on_its_containers_loopback_has_no_page_for_the_sidecar() -> None:
    of = services(run(JSON.replace('["m"]', '["m", "--host", "127.0.0.1"]')).text)
    assert not [word for word in of["v-kvscope"]["command"] if word.startswith("--url")]


@pytest.mark.parametrize(
    ("script", "url"),
    [
        ("vllm serve m --host 127.0.0.1", None),
        ("vllm serve m & proxy --host 127.0.0.1", "vllm=http://v:8000"),
        (
            "exec python3 -m sglang.launch_server --model-path m --host 0.0.0.0 --enable-metrics",
            "sglang=http://v:30000",
        ),
        ("python3 -m sglang.launch_server --enable-metrics & proxy --host 0.0.0.0", None),
    ],
)
def test_a_servers_host_is_read_in_a_script(script: str, url: str | None) -> None:
    outcome = run(JSON.replace('["m"]', f'["{script}"], "entrypoint": ["sh", "-c"]'))
    command = services(outcome.text)["v-kvscope"]["command"]
    assert [word for word in command if word.startswith("--url")] == ([f"--url={url}"] * bool(url))
    assert ("its container's loopback alone" in outcome.said) == (url is None)


def test_nothing_but_the_observer_writes_what_the_server_imports() -> None:
    of = services(run(MAPPING).text)
    (code,) = (
        each for each in of["llama"]["volumes"] if PLUGIN_FOLDER.startswith(each.split(":")[1])
    )
    assert code.endswith(":ro")
    assert code.split(":")[0] not in str(of["llama-kvscope"])


def test_a_server_whose_page_cannot_be_reached_is_observed_and_the_reason_is_printed() -> None:
    for network in ("service:vpn", "bridge"):
        outcome = run(JSON.replace('"image"', f'"network_mode": "{network}", "image"'))
        command = services(outcome.text)["v-kvscope"]["command"]
        assert not [word for word in command if word.startswith("--url")]
        assert f"v: its page is not read: its network is that of {network}" in outcome.said
    outcome = run(JSON.replace('["m"]', '["m", "--port", "${PORT:-8001}"]'))
    assert "v: its page is not read" in outcome.said


def test_what_the_server_loads_outlasts_a_restart_of_the_machine() -> None:
    """Docker then starts all containers at once, and a volume in memory would be empty."""
    volumes = yaml.safe_load(run(JSON).text)["volumes"]
    assert volumes["v-kvscope-observer"] == {}
    assert volumes["v-kvscope-sockets"]["driver_opts"]["type"] == "tmpfs"


def test_another_user_changes_no_volume() -> None:
    """Compose would keep the one that belongs to the user before."""
    root, other = (yaml.safe_load(run(JSON, *user).text) for user in ((), ("--user=1000",)))
    assert other["services"]["v-kvscope"]["user"] == "1000"
    assert other["volumes"] == root["volumes"]


def test_an_observer_is_healthy_once_it_has_written_everything() -> None:
    observer = services(run(JSON).text)["v-kvscope-observer"]
    *_, mark = observer["healthcheck"]["test"]
    (script,) = observer["command"]
    assert script.startswith(f"kvscope observer install {PLUGIN_FOLDER} ")
    assert f"&& touch {mark} &&" in script
    assert mark.startswith(observer["tmpfs"][0]), "the next start does not find it"


@pytest.mark.parametrize(
    "service",
    [
        '{"image": "a", "ports": ["8010:3000"]}',
        '{"image": "a", "ports": ["127.0.0.1:8010:3000/tcp"]}',
        '{"image": "a", "ports": ["[::1]:8009-8010:3000-3001"]}',
        '{"image": "a", "ports": ["${PORT:-8010}:${PORT:-8010}"]}',
        '{"image": "a", "ports": [{"target": 3000, "published": "8010"}]}',
        '{"image": "a", "network_mode": "host", "command": "serve --port 8010"}',
        '{"image": "a", "network_mode": "host", "command": ["serve", "--port=8010"]}',
    ],
)
def test_a_sidecar_takes_a_port_that_no_service_takes(service: str) -> None:
    text = JSON.replace('{"v"', f'{{"other": {service}, "v"')
    assert services(run(text).text)["v-kvscope"]["ports"] == ["127.0.0.1:8011:8010"]
    free = text.replace("8010", "3000")
    assert services(run(free).text)["v-kvscope"]["ports"] == ["127.0.0.1:8010:8010"]


def test_a_service_without_a_port_that_is_free_is_left_alone() -> None:
    text = JSON.replace('{"v"', '{"other": {"image": "a", "ports": ["65535:80"]}, "v"')
    outcome = run(text, "--port=65535")
    assert (outcome.text, outcome.code) == ("", 1)
    reason = "no port from 65535 on is free for its page: choose a lower --port"
    assert f"v: left alone: {reason}" in outcome.said
    two = JSON.replace('{"v"', '{"w": {"image": "vllm/vllm-openai"}, "v"')
    both = run(two, "--port=65535")
    assert services(both.text).keys() == {"w", "v", "w-kvscope", "w-kvscope-observer"}
    assert (both.code, run(both.text, "--remove").text) == (1, two)


def test_a_server_that_is_added_later_has_another_port() -> None:
    first = run(JSON).text
    later = first.replace('"services": {', '"services": {"w": {"image": "vllm/vllm-openai"}, ')
    both = run(later)
    assert services(both.text)["w-kvscope"]["ports"] == ["127.0.0.1:8011:8010"]
    assert services(both.text)["v-kvscope"]["ports"] == ["127.0.0.1:8010:8010"]


def test_removing_keeps_services_that_are_only_named_alike() -> None:
    text = MAPPING.replace("  web:", "  prometheus-kvscope:\n    image: prom/prometheus\n  web:")
    text = text.replace("  models:\n", "  models:\n  data-kvscope-sockets:\n")
    assert run(text, "--remove").text == text
    assert run(run(text).text, "--remove").text == text


def test_variables_of_a_file_are_mentioned() -> None:
    outcome = run(JSON.replace('"image"', '"env_file": ".env", "image"'))
    assert "v: it has an env_file: PYTHONPATH there no longer counts" in outcome.said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MAPPING.replace("db: {condition: service_healthy}", "- db"), "depends_on is a list"),
        (LIST.replace('user: "1000:1000"', "user: app"), "--user UID"),
        (JSON.replace('"image"', '"deploy": {"replicas": 2}, "image"'), "replicas would share"),
        (MAPPING.replace("--port 8001", "--port '8001"), "cannot be read"),
    ],
)
def test_a_service_that_cannot_be_observed_is_left_alone(text: str, reason: str) -> None:
    outcome = run(text)
    assert outcome.code == 1
    assert reason in outcome.said
