"""The address of a vLLM's API server, from its command."""

import shlex
from pathlib import Path

import pytest

from kvscope.run.api_server import api_server_of

SERVE = "vllm serve Qwen/Qwen3-0.6B"
MODULE = "python -m vllm.entrypoints.openai.api_server --model m"


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (SERVE, "http://127.0.0.1:8000"),
        (f"/opt/vllm/bin/{SERVE} --port 8001", "http://127.0.0.1:8001"),
        (f"env A=b numactl -N 0 {SERVE} --port=8001", "http://127.0.0.1:8001"),
        (f"{SERVE} --port 8001 --port 8002", "http://127.0.0.1:8002"),
        (f"{MODULE} --host 0.0.0.0 --port 9000", "http://127.0.0.1:9000"),
        (f"{MODULE} --host 10.0.0.7", "http://10.0.0.7:8000"),
        (f"{MODULE} --host ::", "http://[::1]:8000"),
        (f"{MODULE} --host fd00::7", "http://[fd00::7]:8000"),
        ("python -m vllm.entrypoints.cli.main serve m --port 8001", "http://127.0.0.1:8001"),
        (f"{SERVE} --ssl-keyfile k --ssl_certfile c", "https://127.0.0.1:8000"),
        (f"{SERVE} --uds /run/vllm.sock", None),
        (f"{SERVE} --headless --data-parallel-size 2", None),
        (f"{SERVE} --port 0", None),
        (f"{SERVE} --port", None),
        ("vllm bench serve --port 8001", None),
        ("python batch.py --port 8001", None),
        ("sh -c 'exit 7'", None),
        ("", None),
    ],
)
def test_the_url_follows_from_the_command(command: str, url: str | None) -> None:
    assert api_server_of(shlex.split(command)) == url


@pytest.mark.parametrize(
    ("text", "more", "url"),
    [
        ("port: 8003\nhost: 0.0.0.0\n", "", "http://127.0.0.1:8003"),
        ("port: 8003\n", "--port 8004", "http://127.0.0.1:8004"),
        ("ssl_keyfile: k\nssl-certfile: c\n", "", "https://127.0.0.1:8000"),
        ("headless: true\n", "", None),
        ("- a list\n", "", "http://127.0.0.1:8000"),
        ("{", "", "http://127.0.0.1:8000"),
    ],
)
def test_it_also_follows_from_vllms_configuration_file(
    tmp_path: Path, text: str, more: str, url: str | None
) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text(text)
    assert api_server_of(shlex.split(f"{SERVE} --config {file} {more}")) == url


def test_a_configuration_file_that_is_none_is_left_to_vllm(tmp_path: Path) -> None:
    assert api_server_of([*SERVE.split(), "--config", str(tmp_path)]) == "http://127.0.0.1:8000"
