"""Ports of whole commands under attack: keys, TLS, few files, clients that never read."""

import re
import resource
import signal
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import httpx
import pytest

from tests.support.http_peer import make_certificate
from tests.support.process import forked_kvscope, kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.nightly]

SMALL = ("--max-model-len", "2048", "--num-gpu-blocks-override", "1024")
SIDECAR = ("sidecar", "--events", "other=tcp://127.0.0.1:1", "--no-gpu", "--port", "0")
BAD_JSON = {"content": b"{bad", "headers": {"Content-Type": "application/json"}}
JSON = {"Content-Type": "application/json"}
FILES = 64
"""As `ulimit -n 64` allows."""


def address_of(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


def test_a_key_is_checked_before_the_body_from_the_first_moment(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\n")
    arguments = ("--port", "0", "--metrics-port", "0", "--api-key-file", str(keys), *SMALL)
    with kvscope("engine", "serve", *arguments) as process:
        url = process.find(r"loading \S+ at (\S+);")
        operators = process.find(r"metrics: (\S+)/metrics")
        for path in ("/v1/completions", "/reset_prefix_cache", "/openapi.json"):
            refused = httpx.post(f"{url}{path}", **BAD_JSON)
            assert refused.status_code == 401, path
            assert refused.json()["error"]["code"] == 401
        assert "serving" not in process.text, "the model was there before it could be asked"
        process.find(r"(serving)")
        assert httpx.post(f"{url}/v1/completions", **BAD_JSON).status_code == 401
        page = httpx.get(f"{url}/metrics").text
        rejected = re.search(r'requests_rejected_total\{[^}]*reason="invalid"\} (\S+)', page)
        assert rejected is None or float(rejected[1]) == 0, "who has no key is not counted"
        for key in ("first", "second"):
            headers = {"Authorization": f"Bearer {key}"}
            assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200
            reset = httpx.post(f"{operators}/reset_prefix_cache", headers=headers)
            assert reset.status_code == 202
            elsewhere = httpx.post(f"{url}/reset_prefix_cache", headers=headers)
            assert elsewhere.status_code == 404, "operators have a port of their own"
        assert httpx.post(f"{operators}/reset_prefix_cache", headers=JSON).status_code == 401
        assert httpx.get(f"{operators}/health").json() == {"status": "ok"}
        assert httpx.head(f"{url}/health").status_code == 200
        assert "first" not in process.text
        process.send(signal.SIGTERM)
        assert process.wait() == 0


def test_without_a_key_the_cache_is_reset_by_nobodys_page() -> None:
    with forked_kvscope("engine", "serve", "--host", "0.0.0.0", "--port", "0", *SMALL) as process:
        url = process.find(r"serving \S+ at (\S+)/v1").replace("0.0.0.0", "127.0.0.1")
        assert "0.0.0.0" in process.find(r"(http\S+ is open to anyone who can reach it)")
        reset = f"{url}/reset_prefix_cache"
        assert httpx.post(reset).status_code == 415
        for other in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            assert httpx.post(reset, headers={**JSON, **other}).status_code == 403
        assert httpx.post(reset, headers=JSON).status_code == 202
        process.send(signal.SIGTERM)
        assert process.wait() == 0


def test_a_sidecar_serves_https_to_those_with_a_password(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(
        f"tls_server_config: {{cert_file: {made.file.name}, key_file: {made.key.name}}}\n"
        f"basic_auth_users: {{prometheus: {hashed}}}\n"
    )
    with forked_kvscope(*SIDECAR, "--web-config-file", str(web)) as process:
        url = process.find(r"targets: (https\S+)/targets")
        trusting = ssl.create_default_context(cafile=made.file)
        with httpx.Client(base_url=url, verify=trusting) as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/health").status_code == 200
            for path in ("/metrics", "/targets", "/scrape?target=other"):
                assert client.get(path, auth=("prometheus", "secret")).status_code == 200
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "Traceback" not in process.text


def test_running_out_of_files_fills_no_log_and_ends_with_those_who_took_them() -> None:
    with forked_kvscope(*SIDECAR) as process, ExitStack() as stack:
        url = process.find(r"targets: (\S+)/targets")
        assert httpx.get(f"{url}/health").status_code == 200
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        before = len(process.lines)
        for _ in range(100):
            client = socket.create_connection(address_of(url), timeout=10)
            stack.enter_context(client).sendall(b"GET /hea")
        wait_for(lambda: "Too many open files" in process.text, "files have run out")
        time.sleep(2)
        stack.close()
        for path in ("/health", "/metrics"):
            assert httpx.get(f"{url}{path}", timeout=30).status_code == 200
        assert len(process.lines) - before <= 4, process.text
    assert "Traceback" not in process.text


def test_a_page_takes_no_file_but_its_connection() -> None:
    with kvscope(*SIDECAR) as process, httpx.Client(timeout=30) as client:
        url = process.find(r"targets: (\S+)/targets")
        assert client.get(f"{url}/health").status_code == 200
        opened = max(int(entry.name) for entry in Path(f"/proc/{process.popen.pid}/fd").iterdir())
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (opened + 1, opened + 1))
        assert client.get(f"{url}/metrics").status_code == 200
    assert "Traceback" not in process.text


def test_more_connections_than_there_is_room_for_lock_nobody_out() -> None:
    with forked_kvscope(*SIDECAR) as process, ExitStack() as stack:
        url = process.find(r"targets: (\S+)/targets")
        for _ in range(1500):
            client = socket.create_connection(address_of(url), timeout=10)
            stack.enter_context(client).sendall(b"GET /hea")
        assert httpx.get(f"{url}/health", timeout=10).status_code == 200
    assert "Traceback" not in process.text


def test_a_signal_ends_it_in_time_while_streams_are_never_read() -> None:
    body = b'{"prompt":"a","max_tokens":2000,"n":4,"stream":true,"ignore_eos":true,"logprobs":20}'
    request = (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    arguments = ("--port", "0", "--drain-seconds", "1", *SMALL)
    with forked_kvscope("engine", "serve", *arguments) as process, ExitStack() as stack:
        url = process.find(r"serving \S+ at (\S+)/v1")
        for _ in range(8):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(address_of(url))
            stack.enter_context(client).sendall(request)
        time.sleep(2)
        process.send(signal.SIGTERM)
        process.find(r"(stopped)")  # and does not wait for the streams
        assert process.wait() == 0
    assert "Traceback" not in process.text
    assert "CancelledError" not in process.text
