"""A server that drips, never ends or lies costs a bounded time and memory, and never the report."""

import asyncio
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvscope.load import LoadSpec, Report, Scenario, ServerError, run
from kvscope.load.http_documents import FetchedDocuments
from tests.support.hostile import (
    Answer,
    bomb,
    completion,
    drip,
    endless,
    head,
    models,
    response,
    serving,
)

EVENTS = "Content-Type: text/event-stream"
PAGE = response(b"vllm:num_preemptions_total 3\n", "Content-Type: text/plain")
HONEST: dict[str, Answer] = {
    "/v1/models": models(),
    "/metrics": PAGE,
    "/v1/completions": completion({"prompt_tokens": 9, "completion_tokens": 4}),
}


def load(answers: dict[str, Answer], **changes: Any) -> Report:
    fields: dict[str, Any] = {
        "scenario": Scenario.RAG,
        "num_requests": 2,
        "concurrency": 2,
        "max_tokens": 8,
        "timeout_seconds": 5.0,
    }
    with serving(HONEST | answers) as hostile:
        spec = LoadSpec(url=hostile.url, **fields | changes)
        return asyncio.run(run(spec, FetchedDocuments()))


@contextmanager
def at_most(seconds: float, mib: int = 150) -> Iterator[None]:
    """Of time, and of growth of this process's highest memory."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert time.monotonic() - started < seconds
    assert grown < mib, f"{grown:.0f} MiB"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.load.server._HELLO_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr("kvscope.load.counters._TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr("kvscope.load.refusal.MAX_REFUSAL_SECONDS", 0.2)


@pytest.mark.parametrize("first", [head(), b"HTTP/1.1 200 OK\r\nX: ", b""])
@pytest.mark.timed
def test_a_dripping_list_of_models_ends_in_time(first: bytes) -> None:
    with at_most(5), pytest.raises(ServerError, match="did not end in time"):
        load({"/v1/models": drip(first, b"x")})


def test_an_endless_list_of_models_is_refused() -> None:
    with at_most(15), pytest.raises(ServerError, match=r"larger than|did not end"):
        load({"/v1/models": endless(head(), b" " * 65536)})


def test_a_bomb_instead_of_the_models_is_refused() -> None:
    with at_most(15), pytest.raises(ServerError, match="larger than"):
        load({"/v1/models": bomb(300)})


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"data": [{"id": "\xff"}]}', b'{"data": 1}', b"NaN", b""],
)
def test_a_list_of_models_of_junk_is_one_line(body: bytes) -> None:
    with pytest.raises(ServerError, match="no list of models") as caught:
        load({"/v1/models": response(body)})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("context", [-5, 0, 10**30, "many", 1.5, True])
def test_an_impossible_context_is_not_believed(context: object) -> None:
    report = load({"/v1/models": models(max_model_len=context)})
    assert report.ok == 2
    assert any("max_model_len cannot be true" in note for note in report.notes)


def test_a_dripping_probe_leaves_the_text_unmeasured() -> None:
    with at_most(10):
        report = load(
            {"/v1/chat/completions": drip(head())}, scenario=Scenario.CHAT, timeout_seconds=0.5
        )
    assert any("tokens per text could not be measured" in note for note in report.notes)
    assert report.failed == {"timeout": 2}


@pytest.mark.parametrize(
    "page", [drip(head("Content-Type: text/plain"), b"a 1\n"), endless(head(), b"a 1\n" * 10_000)]
)
def test_a_page_without_end_costs_its_numbers_only(page: Answer) -> None:
    with at_most(20):
        report = load({"/metrics": page})
    assert (report.ok, report.preemptions) == (2, None)
    assert any("did not end in time" in n or "larger than" in n for n in report.notes)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3", "1e300", "9" * 5000, "x"])
def test_a_counter_that_cannot_be_true_is_unknown_and_said(value: str) -> None:
    page = response(f"vllm:num_preemptions_total {value}\n".encode(), "Content-Type: text/plain")
    report = load({"/metrics": page})
    assert (report.ok, report.preemptions) == (2, None)
    (note,) = report.notes
    assert "not Prometheus text" in note


def test_a_counter_that_becomes_infinite_during_the_run_is_unknown() -> None:
    pages = iter(("1", "+Inf"))

    def answer(connection: Any) -> None:
        text = f"vllm:num_preemptions_total {next(pages)}\n"
        connection.sendall(response(text.encode(), "Content-Type: text/plain"))

    report = load({"/metrics": answer})
    assert (report.ok, report.preemptions) == (2, None)


@pytest.mark.parametrize(
    ("usage", "doubtful"),
    [
        ({"completion_tokens": -7}, {"completion_tokens"}),
        ({"completion_tokens": 10**30}, {"completion_tokens"}),
        ({"completion_tokens": 900}, {"completion_tokens"}),
        ({"completion_tokens": 1.5}, {"completion_tokens"}),
        ({"prompt_tokens": -1}, {"prompt_tokens"}),
        ({"prompt_tokens": 1e300}, {"prompt_tokens"}),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}}, {"cached_tokens"}),
        ({"prompt_tokens": "5", "completion_tokens": None}, {"prompt_tokens"}),
        ({"prompt_tokens": [[[]]], "prompt_tokens_details": 1}, {"prompt_tokens"}),
    ],
)
def test_usage_that_cannot_be_true_is_absent_and_said(
    usage: dict[str, object], doubtful: set[str]
) -> None:
    report = load({"/v1/completions": completion(usage)})
    assert report.ok == 2
    assert {note.partition(" ")[0] for note in report.notes} == doubtful
    assert all("in 2 answer(s)" in note for note in report.notes)
    assert report.output_tokens == 8
    rate = report.hit_rate_usage
    assert rate is None or (rate.ratio or 0) <= 1
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (drip(head(EVENTS), b": wait\n"), "timeout"),
        (drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "timeout"),
        (endless(head(EVENTS), b": wait\n" * 10_000), "stream"),
        (
            endless(head(EVENTS), b'data: {"choices": [{"text": "' + b"x" * 9000 + b'"}]}\n\n'),
            "stream",
        ),
        (endless(head(EVENTS), b"data\n" * 10_000), "stream"),
        (endless(head(EVENTS), b"x" * 65536), "stream"),
        (bomb(300), "stream"),
        (endless(head(status="500 No"), b"x" * 65536), "http_500"),
        (drip(head(status="500 No"), b"x"), "http_500"),
        (response(b"data: " + b"[" * 100_000 + b"\n\n"), "stream"),
        (response(b'data: {"error": ' + b"[" * 500 + b"]" * 500 + b"}\n\n"), "stream"),
        (response(b'data: {"choices": [{"text": "\xff"}]}\n\n'), "stream"),
        (response(b'data: {"usage": {"completion_tokens": NaN}}\n\n'), "stream"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "disconnected"),
        (b"\x00" * 1000, "disconnected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_stream_of_junk_fails_in_bounded_time_and_memory(answer: Answer, kind: str) -> None:
    seconds = 0.5 if kind == "timeout" else 5.0
    with at_most(20):
        report = load({"/v1/completions": answer}, timeout_seconds=seconds)
    assert (report.ok, report.failed) == (0, {kind: 2})
    assert len(report.first_failures[kind]) <= 200


@pytest.mark.parametrize(
    "header",
    ["Thu, 01 Jan 99999999999999999999 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 +99999999999999"],
)
def test_a_retry_after_of_junk_does_not_lose_the_report(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope.load.client.DEFAULT_RETRY_SECONDS", 0.01)
    refusal = response(b"{}", f"Retry-After: {header}", status="429 Too Many Requests")
    report = load({"/v1/completions": refusal})
    assert (report.failed, report.retried) == ({"http_429": 2}, 10)
    assert any(note.startswith("Retry-After cannot be true") for note in report.notes)


def test_redirects_are_not_followed() -> None:
    away = response(b"", "Location: http://192.0.2.1/", status="307 Temporary Redirect")
    assert load({"/v1/completions": away}).failed == {"http_307": 2}
