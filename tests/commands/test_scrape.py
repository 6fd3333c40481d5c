"""Reading a page: values by the catalogue's names, limits of time and size, what is not a page."""

import contextlib
import time
from collections.abc import Iterator

import httpx
import pytest

from kvscope.answer_document import AnswerError
from kvscope.cli.demo import status_line
from kvscope.doctor import scrape as scrape_module
from kvscope.doctor.scrape import ScrapedPage, parse_page, scrape

URL = "http://kvscope/metrics"
PAGE = b"""\
kvscope_requests{model_name="0",engine="0",state="running"} 3
kvscope_requests{model_name="0",engine="0",state="waiting"} 2
kvscope_kv_active_ratio{model_name="0",engine="0"} 0.5
"""


def page() -> ScrapedPage:
    return parse_page(PAGE, "text/plain; version=0.0.4", URL)


def fetch(answer: httpx.Response, timeout: float = 5.0) -> ScrapedPage:
    with httpx.Client(transport=httpx.MockTransport(lambda request: answer)) as client:
        return scrape(client, URL, timeout)


def test_samples_with_the_labels_are_summed_and_others_are_unknown() -> None:
    assert page().value("kvscope_requests", state="running") == 3
    assert page().value("kvscope_requests") == 5
    assert page().value("kvscope_requests", model_name="other") is None
    assert page().value("kvscope_kv_allocation_failures_total") is None, "absent is not 0"


def test_a_name_or_label_that_is_not_in_the_catalogue_is_an_error() -> None:
    with pytest.raises(KeyError, match="kvscope_requests"):
        page().value("kvscope_request")
    with pytest.raises(KeyError, match="no label stat"):
        page().value("kvscope_requests", stat="running")


def test_the_demo_reads_labels_by_name() -> None:
    line = status_line(page())  # a model called `0` as well
    assert "active  50%" in line
    assert "running  3  waiting  2" in line


def test_the_format_follows_the_content_type() -> None:
    strict = fetch(
        httpx.Response(
            200,
            content=iter([b"# EOF\n"]),
            headers={"content-type": "application/openmetrics-text"},
        )
    )
    assert strict.is_openmetrics
    with pytest.raises(AnswerError, match="cannot be parsed"):
        fetch(
            httpx.Response(
                200, content=iter([PAGE]), headers={"content-type": "application/openmetrics-text"}
            )
        )
    with pytest.raises(AnswerError, match="cannot be parsed"):
        fetch(httpx.Response(200, content=iter([b"\xff\xfe"])))


def test_a_failure_names_url_and_status() -> None:
    with pytest.raises(AnswerError, match=f"{URL} answered 503"):
        fetch(httpx.Response(503))


def test_a_page_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip() -> Iterator[bytes]:
        while True:
            time.sleep(0.01)
            yield b"a 1\n"

    with pytest.raises(AnswerError, match="did not end in time"):
        fetch(httpx.Response(200, content=drip()), timeout=0.1)
    monkeypatch.setattr(scrape_module, "MAX_BYTES", 64)
    with pytest.raises(AnswerError, match="is larger than 64 bytes"):
        fetch(httpx.Response(200, content=drip()))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/metrics", "http://["])
def test_silence_is_distinguished_from_a_bad_page(url: str) -> None:
    with httpx.Client() as client, pytest.raises(AnswerError, match="nothing answers at"):
        scrape(client, url)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"\n" * 200_001, "more than 200000 lines"),
        (b"a{" + b'b="",' * 2000 + b"} 1\n", "more than 8192 characters"),
        (b"a " + b"9" * 400 + b"\n", "OverflowError"),
        (b"\xff", "UnicodeDecodeError"),
    ],
)
def test_a_page_that_would_cost_too_much_is_refused_in_one_line(page: bytes, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason) as caught:
        parse_page(page, "text/plain", URL)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_page_that_takes_too_long_to_parse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape_module, "PARSE_SECONDS", -1.0)
    with pytest.raises(AnswerError, match="takes longer than"):
        page()


@pytest.mark.parametrize(
    "line", [b"# TYPE\n", b"# HELP a\n# UNIT\n", b'a{b="c"\n', b"{} 1\n", b"{", b"a 1 # {} 1 1\n"]
)
@pytest.mark.parametrize("content_type", ["text/plain", "application/openmetrics-text"])
def test_a_page_of_junk_is_a_page_or_one_line(line: bytes, content_type: str) -> None:
    for body in (line, line + b"# EOF\n"):
        with contextlib.suppress(AnswerError):
            parse_page(body, content_type, URL)
