"""A server's page is read when it is asked for, in time, and says what is wrong with it."""

import gzip
import logging
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
import yaml

from kvscope_alerts.timing import seconds_of
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.scrape import PageReader, Tls
from kvscope_exporter.scrape import reader as reader_module
from kvscope_exporter.scrape.reader import DEFAULT_TIMEOUT, MAX_AGE_NS
from kvscope_exporter.scrape.samples import MAX_SECONDS
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import make_exporter
from tests.repo.checkout import ROOT
from tests.scrape.answers import HTML, answering, counted, page
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.http_peer import make_certificate

PAGE = CURRENT_PAGE.encode()


def test_a_good_page_is_read_compressed_or_not_and_dated() -> None:
    for body, more in (
        (PAGE, ""),
        (gzip.compress(PAGE), "Content-Encoding: gzip\r\n"),
    ):
        with answering(page(body, more=more)) as url:
            reader = PageReader(url, "vllm")
            reading = reader.read()
            reader.close()
        assert reading.is_up
        assert reading.engines[("m", "0")].values["kvscope_kv_blocks"] == {("active",): 172}
        assert counted(reader) == {}
        assert reader.last_success_ns is not None


def test_a_byte_order_mark_costs_no_sample() -> None:
    """Without the first one the sum would be too small."""
    first, second = (f'vllm:num_preemptions_total{{engine="0",x="{n}"}} {n}\n' for n in (3, 4))
    with answering(page(f"\ufeff{first}{second}".encode())) as url:
        reader = PageReader(url, "vllm")
        (engine,) = reader.read().engines.values()
        reader.close()
    assert [*engine.values["kvscope_preemptions_total"].values()] == [7]


def test_two_scrapers_cause_one_request_and_a_second_later_there_is_another() -> None:
    requests: list[int] = []

    def count(connection: socket.socket) -> None:
        requests.append(1)
        connection.sendall(page(PAGE))

    now = [10**12]
    clock = Clock(monotonic_ns=lambda: now[0])
    with answering(count) as url:
        reader = PageReader(url, "vllm", clock=clock)
        threads = [threading.Thread(target=reader.read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(requests) == 1
        now[0] += MAX_AGE_NS
        reader.read()
        assert len(requests) == 2
        reader.close()


def test_a_page_that_fails_takes_its_families_away_and_brings_them_back() -> None:
    now = [10**12]
    answers = [page(PAGE), b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", page(PAGE)]
    with answering(lambda connection: connection.sendall(answers.pop(0))) as url:
        reader = PageReader(url, "vllm", clock=Clock(monotonic_ns=lambda: now[0]))
        seen = []
        for _ in range(3):
            seen.append(len(reader.read().engines))
            now[0] += MAX_AGE_NS
        reader.close()
    assert seen == [1, 0, 1]


def test_while_an_attempt_hangs_in_the_resolver_there_is_no_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def hang(*args: object, **more: object) -> list[object]:
        released.wait(20)
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    now = [10**12]
    reader = PageReader(
        "http://slow.invalid/metrics",
        "vllm",
        timeout=0.2,
        clock=Clock(monotonic_ns=lambda: now[0]),
    )
    before = threading.active_count()
    for expected in (1, 2, 3):
        assert not reader.read().is_up
        assert counted(reader) == {"timeout": expected}
        assert threading.active_count() <= before + 1
        now[0] += MAX_AGE_NS
    released.set()
    reader.close()


def test_errors_are_logged_once_per_kind_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [10**12]
    with answering(page(HTML, content_type="text/html")) as url, caplog.at_level(logging.WARNING):
        reader = PageReader(url, "vllm", clock=Clock(monotonic_ns=lambda: now[0]))
        for _ in range(3):
            reader.read()
            now[0] += 2 * MAX_AGE_NS
        assert len(caplog.records) == 1
        assert "text/html" in caplog.text
        now[0] += 60 * 10**9
        reader.read()
        assert len(caplog.records) == 2
        reader.close()


TWICE = """\
vllm:num_requests_running{engine="0",model_name="m",shard="a"} 1
vllm:num_requests_running{engine="0",model_name="m",shard="b"} 2
"""
UNREAD = {
    "declared only": (
        "# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n",
        "without samples: it was started with --disable-log-stats",
    ),
    "declared beside samples of its process": (
        "# TYPE vllm:kv_cache_usage_perc gauge\npython_gc_objects_total 7\n",
        "without samples: it was started with --disable-log-stats",
    ),
    "two values for one engine": (TWICE, "vllm:num_requests_running has 2 values for one engine"),
    "no numbers yet": (
        'vllm:num_requests_waiting{engine="0",model_name="m"} NaN\n',
        "kvscope_requests cannot be nan",
    ),
    "other names of the server": (
        "vllm:a_family_of_a_later_version 1\n",
        "no family of vLLM that kvscope reads",
    ),
    "engines passed on under other names": (
        'ray_other_sglang_num_running_reqs{ReplicaId="r"} 1\n',
        "no family of Ray Serve LLM that kvscope reads",
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_page_that_gives_nothing_is_a_problem_and_its_server_not_ready(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    text, why = UNREAD[name]
    with answering(page(text.encode())) as url, caplog.at_level(logging.WARNING):
        reader = PageReader(url)
        exporter = Exporter([], readers=[reader], process=False)
        shown = exporter.render("text/plain")[0].decode()
        exporter.stop()
    assert not reader.is_up
    assert reader.answers
    assert counted(reader)["nothing_read"] == 1
    assert why in caplog.text
    assert 'kvscope_server_state{state="loading"} 1.0' in shown


def test_a_ray_whose_engines_nobody_has_asked_is_no_problem() -> None:
    with answering(page(b"ray_node_cpu_count 8\n")) as url:
        reader = PageReader(url)
        assert reader.read().is_up
        reader.close()
    assert not counted(reader)


def test_a_page_says_what_server_it_is_of() -> None:
    now = [10**12]
    answers = [page(b"a 1\n"), page(PAGE)]
    with answering(lambda connection: connection.sendall(answers.pop(0))) as url:
        reader = PageReader(url, clock=Clock(monotonic_ns=lambda: now[0]))
        assert reader.kind is None
        assert not reader.read().is_up
        assert counted(reader) == {"unknown_server": 1}
        assert reader.problem is not None
        assert "names of a server that kvscope reads (vLLM, SGLang, " in reader.problem
        now[0] += MAX_AGE_NS
        assert reader.read().is_up
        assert reader.kind == "vllm"
        reader.close()


def test_a_page_of_kvscope_itself_is_refused_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = make_exporter()[0].render()[0]
    with answering(page(own)) as url, caplog.at_level(logging.WARNING):
        reader = PageReader(url)
        assert not reader.read().is_up
        assert counted(reader) == {"unknown_server": 1}
        reader.close()
    assert (
        "kvscope engine serve already exports these metrics: let Prometheus scrape it"
        in caplog.text
    )


def test_headers_are_sent_and_secrets_are_not_shown() -> None:
    heads: list[bytes] = []

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heads.append(connection.recv(65536))
                connection.sendall(page(PAGE))

        thread = threading.Thread(target=serve)
        thread.start()
        reader = PageReader(
            f"http://user:secret@127.0.0.1:{port}/metrics?token=x",
            "vllm",
            headers={"X-Tenant": "t"},
        )
        assert reader.read().is_up
        thread.join()
        reader.close()
    assert b"X-Tenant: t\r\n" in heads[0]
    assert b"Authorization: Basic" in heads[0]
    assert b"GET /metrics?token=x" in heads[0]
    assert reader.endpoint == f"http://127.0.0.1:{port}/metrics"


def test_a_server_without_labels_takes_the_name_it_was_given() -> None:
    with answering(page(b"llamacpp:requests_processing 4\n")) as url:
        reader = PageReader(url, "llama.cpp", model_name="given")
        assert list(reader.read().engines) == [("given", "0")]
        reader.close()


def test_a_bug_of_ours_is_counted_and_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(reader_module, "_text_of", fail)
    with answering(page(PAGE)) as url:
        reader = PageReader(url, "vllm")
        assert not reader.read().is_up
        assert counted(reader) == {"bug": 1}
        reader.close()


def test_a_bad_setting_is_refused(tmp_path: Path) -> None:
    for url in ("metrics", "ftp://host/metrics", "http:///metrics"):
        with pytest.raises(ValueError, match="expected http://HOST:PORT/PATH"):
            PageReader(url)
    with pytest.raises(ValueError, match="kind 'kvscope': expected auto or one of vllm"):
        PageReader("http://host/metrics", "kvscope")
    with pytest.raises(OSError, match="No such file"):
        PageReader("https://host/metrics", tls=Tls(ca=str(tmp_path / "none.pem")))


def test_a_certificate_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)

    def secure(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            wrapped.sendall(page(PAGE))

    with answering(secure, reads_first=False) as url:
        url = url.replace("http:", "https:")
        for tls, expected in (
            (None, {"tls": 1}),
            (Tls(ca=str(certificate.file)), {}),
            (Tls(verify=False), {}),
        ):
            reader = PageReader(url, "vllm", tls=tls)
            assert reader.read().is_up == (not expected)
            assert counted(reader) == expected
            reader.close()


@pytest.mark.timed
def test_a_page_that_comes_late_and_is_slow_to_read_leaves_time_for_our_own() -> None:
    labels = ",".join(f'a{number:x}=""' for number in range(1000))
    lines = "".join(f'vllm:num_requests_running{{x="{n}",{labels}}} 1\n' for n in range(400))
    with answering(page(lines.encode())) as url:
        reader = PageReader(url, "vllm", timeout=0.3)
        began = time.monotonic()
        assert not reader.read().is_up
        assert time.monotonic() - began < MAX_SECONDS
        assert counted(reader) in ({"too_large": 1}, {"timeout": 1})
        reader.close()


def test_a_server_that_does_not_answer_leaves_time_for_our_own_page() -> None:
    """Otherwise a scrape of ours fails while its server hangs, and nothing says that it does."""
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    monitor = yaml.safe_load(
        (ROOT / "deploy" / "kubernetes" / "base" / "podmonitor.yaml").read_text()
    )
    waits = [jobs["global"]["scrape_timeout"]]
    waits += [each["scrapeTimeout"] for each in monitor["spec"]["podMetricsEndpoints"]]
    for wait in waits:
        assert seconds_of(wait) - 1 > DEFAULT_TIMEOUT == ServerConfig(name="s").timeout
