"""`kvscope doctor SERVER`: its findings for each kind of server, and for anything else."""

import json as json_
import shlex
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.doctor import command_line
from kvscope.doctor.command_line import command_on, is_local
from kvscope_events.bus import EventBus
from kvscope_events.events import Hello
from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import SNAPSHOT
from tests.exporter.page import hello
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.http_peer import Answer, json, make_certificate, serving, text

VLLM: dict[str, Answer] = {
    "/metrics": text(CURRENT_PAGE),
    "/version": json('{"version": "0.32.0"}'),
    "/health": text(""),
}
OFF = '{"0": {"enable_kv_cache_events": false, "publisher": "null", "endpoint": ""}}'
ON = (
    '{"0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",'
    ' "replay_endpoint": "tcp://*:5657"}}'
)
SGLANG = 'sglang:max_total_num_tokens{model_name="q",engine_type="unified",tp_rank="0"} 64\n'


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("KVSCOPE_RUN_DIR", str(run))
    monkeypatch.delenv("KVSCOPE_OBSERVER_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.doctor.gpus.gpu_findings", lambda poller, timeout: iter(()))


def doctor(url: str, *options: str) -> tuple[int, str]:
    """Exit status and the screen, its lines joined where they were broken."""
    result: Result = CliRunner().invoke(app, ["doctor", url, *options])
    for line in result.output.splitlines():  # but for what is to be copied
        assert len(line) <= 80 or line.startswith(("  kvscope ", "  --", "  - {")), line
    return result.exit_code, " ".join(result.output.split())


def test_a_bare_vllm() -> None:
    with serving({**VLLM, "/kv_event_sources": json(OFF)}) as peer:
        code, said = doctor(peer.url)
    assert code == 0
    assert f"vllm 0.32.0 at {peer.url}, serving m" in said
    assert "observer no no observer of this model has a socket" in said
    assert "KV events no it publishes no KV events; switch them on with --kv-events-" in said
    assert "page yes" in said
    assert "- why prefixes were missed: never seen, evicted, unreachable, vetoed" in said
    assert "- requests running and waiting" not in said, "its page says that"
    assert "start it with the observer, which adds all of these: kvscope run -- " in said


def test_the_command_line_is_that_of_the_process_with_its_secrets_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(VLLM) as peer:
        port = int(peer.url.rpartition(":")[2])
        proc = tmp_path / "proc"
        (proc / "net").mkdir(parents=True)
        (proc / "net" / "tcp").write_text(
            f"head\n 0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n"
        )
        process = proc / "42"
        (process / "fd").mkdir(parents=True)
        (process / "fd" / "3").symlink_to("socket:[4711]")
        words = ["/usr/bin/python3", "/usr/bin/vllm", "serve", "a b", "--api-key", "sk-1"]
        (process / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
        assert command_on(port, proc) == "vllm serve 'a b' --api-key '***'"
        assert command_on(port + 1, proc) is None
        monkeypatch.setattr(command_line, "MAX_LENGTH", 1 << 20)  # with many tests named on it
        own = Path("/proc/self/cmdline").read_text().split("\0")[:-1]
        assert shlex.split(str(command_on(port)))[-1] == own[-1], "this process"


def test_a_vllm_with_its_events_on() -> None:
    with serving({**VLLM, "/kv_event_sources": json(ON)}) as peer:
        code, said = doctor(peer.url)
    assert code == 0
    assert "KV events yes tcp://127.0.0.1:5557 " in said
    assert "- blocks that are free, and those that hold reusable content" not in said


def test_a_vllm_that_is_observed(tmp_path: Path) -> None:
    seen: list[Hello] = [hello(server="vllm", model_name="m")]
    with observer(tmp_path / "run" / "run-8010" / "sockets" / "engine-0.sock", seen):
        with serving(VLLM) as peer:
            code, said = doctor(peer.url)
        assert code == 0
        assert "observer yes 1 process(es) publish at" in said
        assert "Not known" not in said
        assert "The change that would add the most" not in said
        other = CURRENT_PAGE.replace('model_name="m"', 'model_name="other"')
        with serving({**VLLM, "/metrics": text(other)}) as peer:
            assert "observer no" in doctor(peer.url)[1], "that one observes another model"


def test_an_engine_of_ours() -> None:
    page = 'kvscope_kv_blocks{model_name="demo",engine="0",state="free"} 1\n'
    with serving({"/metrics": text(page), "/health": text("")}) as peer:
        code, said = doctor(peer.url)
    assert code == 0
    assert f"kvscope at {peer.url}, serving demo" in said
    assert "observer yes the page is kvscope's own" in said
    assert "Not known" not in said


def test_an_sglang_is_not_asked_for_its_health_and_its_observer_is_found(tmp_path: Path) -> None:
    info = json('{"version": "0.5.23", "model_path": "/q", "kv_events": null}')
    with serving({"/metrics": text(SGLANG), "/server_info": info}) as peer:
        code, said = doctor(peer.url)
        assert "/health" not in peer.asked, "it would generate a token"
    assert code == 0
    assert "sglang 0.5.23" in said
    assert "kvscope run -- " in said
    seen = [hello(server="sglang", model_name="q")]
    with (
        observer(tmp_path / "run" / "sglang" / "engine-0.sock", seen),
        serving({"/metrics": text(SGLANG), "/server_info": info}) as peer,
    ):
        assert "observer yes 1 process(es) publish at" in doctor(peer.url)[1]
    with serving({"/server_info": info}) as peer:
        code, said = doctor(peer.url)
    assert "page no /metrics answered 404" in said
    assert "kvscope run -- " in said


def test_ray_serve_has_its_page_elsewhere() -> None:
    with serving({"/-/routes": json('{"/": "app"}'), "/-/healthz": text("success")}) as peer:
        code, said = doctor(peer.url)
    assert code == 1
    assert "ray at" in said
    assert "/metrics answered 404" in said
    assert "prom_metrics_service_discovery.json" in said


def test_a_server_without_statistics_is_still_known() -> None:
    with serving(
        {**VLLM, "/metrics": text("python_info 1\n"), "/kv_event_sources": json(OFF)}
    ) as p:
        said = doctor(p.url)[1]
    assert "vllm 0.32.0" in said
    assert "page no /metrics is that of a vLLM without samples" in said


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (text("<html>hello</html>", "text/html"), "/metrics is text/html, not a page of metrics"),
        (text("a 1\n"), "text format, 1 series"),
        (text("", status=302), "/metrics answered 302, a redirect"),
        (text("", status=500), "/metrics answered 500"),
        (text("\x00\xff" * 1000), "cannot be parsed"),
    ],
)
def test_what_is_no_server_is_said_to_be_none(answer: Answer, says: str) -> None:
    with serving({"/metrics": answer}) as peer:
        code, said = doctor(peer.url)
    assert code == 1
    assert "answers, but is not a server that kvscope knows (vLLM, SGLang, " in said
    assert says in said


def test_a_version_makes_no_vllm_of_a_server_with_other_figures_at_metrics() -> None:
    with serving({"/metrics": json("[{}]"), "/version": json('{"version": "1.1"}')}) as peer:
        said = doctor(peer.url)[1]
    assert "answers, but is not a server that kvscope knows" in said
    assert "/metrics is application/json, not a page of metrics" in said


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("# TYPE vllm:num_requests_running gauge\n", "a vLLM without samples: it was started with"),
        (
            'sglang_token_usage{model_name="m",part="a"} 0.1\n'
            'sglang_token_usage{model_name="m",part="b"} 0.9\n',
            "has 2 values for one engine",
        ),
    ],
    ids=["declared only", "two values"],
)
def test_a_page_that_gives_nothing_is_a_problem(page: str, says: str) -> None:
    with serving({"/metrics": text(page)}) as peer:
        code, said = doctor(peer.url)
    assert code == 1
    assert says in said
    assert "not a server that kvscope knows" not in said


def _drip(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Type", "text/plain")
    request.end_headers()
    while True:
        request.wfile.write(b"#\n")
        request.wfile.flush()
        time.sleep(0.1)


def _hang(request: BaseHTTPRequestHandler) -> None:
    threading.Event().wait(60)


@pytest.mark.parametrize("answer", [_drip, _hang])
def test_a_page_that_never_ends_holds_nobody(
    answer: Callable[[BaseHTTPRequestHandler], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope.doctor.target.READ_SECONDS", 0.5)
    with serving({"/metrics": answer}) as peer:
        began = time.monotonic()
        code, said = doctor(peer.url)
        assert time.monotonic() - began < 40
    assert code == 1
    assert "did not end in time" in said or "did not answer in time" in said


def test_nothing_there_and_no_such_host() -> None:
    code, said = doctor("http://127.0.0.1:9")
    assert code == 1
    assert "nothing answers at http://127.0.0.1:9" in said
    for url in ("http://a..b", "http://127.0.0.1:99999", "http://[", "nonsense"):
        code, said = doctor(url)
        assert code == 1, url
        assert "1 problem" in said, said
    code, said = doctor("ftp://x")
    assert (code, said) == (2, "kvscope: ftp://x: not a server: write http://HOST:PORT")


def test_an_authority_that_is_not_known(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with serving({**VLLM, "/kv_event_sources": json(OFF)}, certificate) as peer:
        code, said = doctor(peer.url)
        assert code == 1
        assert "its certificate is not accepted" in said
        assert "--ca FILE names the authority to trust" in said
        code, said = doctor(peer.url, "--ca", str(certificate.file))
        assert code == 0, said
        assert "vllm 0.32.0" in said
        arguments = ["doctor", peer.url, "--ca", str(tmp_path / "none")]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "No such file" in result.output


def test_which_hosts_are_this_one() -> None:
    assert is_local("127.0.0.1")
    assert is_local("localhost")
    assert not is_local("192.0.2.1")
    assert not is_local("no such host")


class observer:
    """A publisher at a socket, which says Hello."""

    def __init__(self, path: Path, hellos: list[Hello]) -> None:
        path.parent.mkdir(mode=0o700, parents=True)
        for folder in (path.parent, path.parent.parent):
            folder.chmod(0o700)
        self._bus = EventBus()
        self._bus.provide_snapshot(lambda: [*hellos, SNAPSHOT])
        self._publisher = WirePublisher(self._bus, f"ipc://{path}")
        for event in (*hellos, SNAPSHOT):
            self._bus.emit(event)

    def __enter__(self) -> None:
        self._publisher.start()
        self._bus.flush()

    def __exit__(self, *_: object) -> None:
        self._publisher.stop()


def test_all_of_it_as_json() -> None:
    with serving({**VLLM, "/kv_event_sources": json(OFF)}) as peer:
        result = CliRunner().invoke(app, ["doctor", peer.url, "-o", "json"])
    assert result.exit_code == 0
    found = json_.loads(result.output)
    assert found["server"]["kind"] == "vllm"
    assert found["server"]["models"] == ["m"]
    assert found["depths"]["events"]["state"] == "no"
    assert found["depths"]["command"].startswith("kvscope run -- ")
    assert "evictions by cause" in found["depths"]["lost"]


def test_an_idle_ray_has_a_page_all_the_same() -> None:
    with serving({"/metrics": text("ray_node_cpu_count 8\n")}) as peer:
        code, said = doctor(peer.url)
    assert code == 0
    assert f"page yes {peer.url}/metrics; no request yet" in said
    assert "KV events - ray publishes none" in said
    assert "Serve's own port" not in said
