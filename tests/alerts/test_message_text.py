"""The text of a message, from a real Alertmanager: what someone reads at 3 am."""

import json
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import yaml

from tests.alerts.stack import free_port, running
from tests.alerts.tools import ALERTMANAGER
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.waits, pytest.mark.alertmanager]

BEGAN = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=3)
AT = BEGAN.strftime("%Y-%m-%dT%H:%M:%S")
Message = dict[str, str]


def alert(name: str, instance: str, servers: str = "", **labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "severity": "critical", "instance": instance, **labels},
        "annotations": {
            "summary": "A pool is too small.",
            "description": f"The pool of {instance} is full.",
            "runbook_url": f"https://example.com/{name}.md",
            "dashboard_url": "https://grafana.example.com/d/kvscope-kv-pool",
            "servers": servers,
        },
        "startsAt": BEGAN.isoformat(),
    }


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Message]]:
    """By alert, as a Slack would get them: the shipped configuration with Slack's address."""
    folder = tmp_path_factory.mktemp("text")
    received: dict[str, Message] = {}

    class Slack(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (said,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))[
                "attachments"
            ]
            received[said["fallback"]] = {name: f"{text}".strip() for name, text in said.items()}
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slack)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text())
    for receiver in config["receivers"]:
        if receiver["name"] == "on-call":
            receiver["slack_configs"] = [
                {
                    "api_url": f"http://127.0.0.1:{server.server_address[1]}/",
                    "channel": "#on-call",
                    "title": '{{ template "kvscope.title" . }}',
                    "text": '{{ template "kvscope.text" . }}',
                    "fallback": "{{ .CommonLabels.alertname }}",
                }
            ]
    config["route"]["group_wait"] = "100ms"
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ALERTMANAGER / "kvscope.tmpl", folder)
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        shutil.which("prometheus-alertmanager") or "alertmanager",
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    sent = [
        alert("KvscopeDeviceMemoryTight", "10.0.0.7:8010", model_name="qwen"),
        alert("KvscopeQueueStuck", "qwen-a", model_name="qwen"),
        *(alert("KvscopeReplicaFails", f"10.0.0.{n}:8010", model_name="qwen") for n in range(7)),
        alert("KvscopeEngineDown", "10.0.0.9:8010", sign="unanswered"),
        alert("VllmServerFails", "10.0.0.8:8000"),
        # Prometheus drops an empty label.
        alert("KvscopeTtftBudgetBurns", "", "10.0.0.7:8010 10.0.0.8:8010 ", model_name="qwen"),
        alert("KvscopeItlBudgetBurns", "", "qwen-b qwen-a ", model_name="qwen-moe"),
        alert("KvscopeErrorBudgetBurns", "", "-", model_name="glm"),
    ]
    try:
        with running(folder, "alertmanager", *command, url=url):
            httpx.post(f"{url}/api/v2/alerts", json=sent, timeout=5).raise_for_status()
            names = {each["labels"]["alertname"] for each in sent}
            wait_for(lambda: received.keys() >= names, "all messages", 60)
            yield received
    finally:
        server.shutdown()
        server.server_close()


def test_a_message_has_the_command_that_names_the_cause(messages: dict[str, Message]) -> None:
    message = messages["KvscopeDeviceMemoryTight"]
    assert message["title"] == "[FIRING] A pool is too small. qwen"
    assert message["text"].splitlines() == [
        "The pool of 10.0.0.7:8010 is full.",
        f"Since:      {AT.replace('T', ' ')} UTC",
        f"Why:        kvscope why http://10.0.0.7:8010 --at {AT}",
        "Recordings: http://10.0.0.7:8010/api/recordings",
        "Runbook:    https://example.com/KvscopeDeviceMemoryTight.md",
        "Board:      https://grafana.example.com/d/kvscope-kv-pool",
    ]


def test_a_server_of_a_sidecar_is_asked_for_by_its_name(messages: dict[str, Message]) -> None:
    text = messages["KvscopeQueueStuck"]["text"]
    assert f"Why:        kvscope why http://SIDECAR:8010 --target qwen-a --at {AT}\n" in text


def test_a_message_about_many_replicas_names_five(messages: dict[str, Message]) -> None:
    message = messages["KvscopeReplicaFails"]
    assert message["title"].endswith("(7 alerts)")
    assert message["text"].count("kvscope why ") == 5
    assert message["text"].endswith("... and more: 7 alerts in all.")


def test_a_message_about_a_model_has_the_commands_for_its_servers(
    messages: dict[str, Message],
) -> None:
    text = messages["KvscopeTtftBudgetBurns"]["text"]
    assert text.splitlines()[2:5] == [
        f"Why:        kvscope why http://10.0.0.7:8010 --at {AT}",
        f"Why:        kvscope why http://10.0.0.8:8010 --at {AT}",
        "Runbook:    https://example.com/KvscopeTtftBudgetBurns.md",
    ]
    # All servers of a sidecar are asked at one address: the first is the worst.
    text = messages["KvscopeItlBudgetBurns"]["text"]
    assert f"Why:        kvscope why http://SIDECAR:8010 --target qwen-b --at {AT}\n" in text
    assert "kvscope why" not in messages["KvscopeErrorBudgetBurns"]["text"]


@pytest.mark.parametrize("name", ["KvscopeEngineDown", "VllmServerFails"])
def test_a_server_that_cannot_answer_is_not_to_be_asked(
    messages: dict[str, Message], name: str
) -> None:
    assert "kvscope why" not in messages[name]["text"]
    assert "Runbook:" in messages[name]["text"]
