"""Specifications that cannot be meant are refused, by name."""

from pathlib import Path
from typing import Any

import pytest

from kvscope.load import LoadSpec, Scenario


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": "127.0.0.1:8000"}, "url must begin with http:// or https://"),
        ({"concurrency": 0}, "--concurrency must be positive, got 0"),
        ({"rate": float("nan")}, "--rate must be positive, got nan"),
        ({"vocab_size": 1}, "--vocab-size must be at least 2"),
        ({"vocab_size": 10**30}, "at most 4294967296"),
        ({"api_key": "a\nb"}, "the token must be printable ASCII"),
        ({"api_key": "a\udcff"}, "the token must be printable ASCII"),
        ({"scenario": Scenario.TRACE}, "trace needs a FILE to replay"),
        ({"trace_file": Path("x")}, "x: only `kvscope load trace` takes a FILE"),
        (
            {"scenario": Scenario.TRACE, "trace_file": Path("x"), "rate": 1.0},
            "use --time-scale, not --rate",
        ),
    ],
)
def test_refused(changes: dict[str, Any], problem: str) -> None:
    fields: dict[str, Any] = {"url": "http://peer", "scenario": Scenario.CHAT}
    with pytest.raises(ValueError, match=problem):
        LoadSpec(**fields | changes)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://a", "must begin with http:// or https://"),
        ("http://", "names no host"),
        ("http://[::1", "Invalid"),
        ("http://a..b", "label"),
        (f"http://{'a' * 64}", "label"),
        ("http://127.0.0.1:99999", "port"),
        ("http://127.0.0.1:0", "port 0"),
        ("http://127.0.0.1:x", "Invalid port"),
        ("http://a/\0", "Invalid"),
        (f"http://a/{'a' * 3000}", "3009 characters"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^url .*{problem}"):
        LoadSpec(url=url, scenario=Scenario.CHAT)


def test_usual_urls_are_taken() -> None:
    for url in ("http://[::1]:8000", "https://bücher.example/v1", "http://user:pw@a:1/x?y=1"):
        LoadSpec(url=url, scenario=Scenario.CHAT)


def test_the_key_is_not_printed() -> None:
    assert "secret" not in repr(LoadSpec(url="http://x", scenario=Scenario.RAG, api_key="secret"))


def test_base_url_has_no_version() -> None:
    for url in ("http://x:1", "http://x:1/", "http://x:1/v1", "http://x:1/v1/"):
        assert LoadSpec(url=url, scenario=Scenario.RAG).base_url == "http://x:1"
