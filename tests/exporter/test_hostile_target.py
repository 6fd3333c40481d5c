"""doctor beside a server that drips, never ends or answers junk: bounded, and always findings."""

import time
from collections.abc import Iterator

import pytest

from kvscope.doctor import Finding
from kvscope.doctor.target import TargetReport, target_report
from kvscope.options.endpoints import servers_of
from tests.support.hostile import Answer, response, serving
from tests.support.waiting import WAIT_SECONDS

TEXT = "Content-Type: text/plain"


def report(answers: dict[str, Answer]) -> TargetReport:
    with serving(answers) as server:
        return target_report(server.url, asked_for=True, look_for=lambda: [])


def problems(found: TargetReport) -> list[Finding]:
    return [finding for finding in found.findings if finding.status == "problem"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("kvscope.doctor.target.READ_SECONDS", 0.5)
    monkeypatch.setattr("kvscope.doctor.identity.ALL_SECONDS", 4.0)
    started = time.monotonic()
    yield
    assert time.monotonic() - started < WAIT_SECONDS


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"version": "\xff"}', b"\xff", b"NaN"])
def test_json_of_junk_is_not_known(body: bytes) -> None:
    paths = ("/kv_event_sources", "/server_info", "/version", "/info", "/props", "/-/routes")
    answers: dict[str, Answer] = {path: response(body) for path in paths}
    assert report(answers).server.kind is None
    page = response(b"vllm:num_requests_running 1\n", TEXT)
    found = report(answers | {"/metrics": page})
    assert (found.server.kind, found.server.version) == ("vllm", "")


def test_a_sidecar_refuses_such_a_url_at_once() -> None:
    for url in ("http://a..b", f"http://{'a' * 64}/x", "http://xn--a:99999"):
        with pytest.raises(ValueError, match=r"empty part|no port"):
            servers_of([], [f"x={url}"])


@pytest.mark.parametrize(
    "url", ["http://a..b", "http://127.0.0.1:99999", "http://[::1", "http://", "x"]
)
def test_a_url_that_cannot_be_asked_is_a_finding(url: str) -> None:
    (finding,) = target_report(url, asked_for=True, look_for=lambda: []).findings
    assert finding.status == "problem"
    assert "\n" not in finding.text
    assert "Errno" not in finding.text, "nobody else's port was asked"
