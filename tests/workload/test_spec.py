"""Specifications that cannot be meant are refused, by name."""

from pathlib import Path
from typing import Any

import pytest

from engine.workload import LoadSpec, Scenario


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": "127.0.0.1:8000"}, "url must begin with http:// or https://"),
        ({"concurrency": 0}, "concurrency must be positive, got 0"),
        ({"rate": float("nan")}, "rate must be positive, got nan"),
        ({"vocab_size": 1}, "vocab_size must be at least 2"),
        ({"scenario": Scenario.TRACE}, "a trace file belongs to scenario `trace`"),
        ({"trace_file": Path("x")}, "a trace file belongs to scenario `trace`"),
        (
            {"scenario": Scenario.TRACE, "trace_file": Path("x"), "rate": 1.0},
            "use time_scale instead of rate",
        ),
    ],
)
def test_refused(changes: dict[str, Any], problem: str) -> None:
    fields: dict[str, Any] = {"url": "http://peer", "scenario": Scenario.CHAT}
    with pytest.raises(ValueError, match=problem):
        LoadSpec(**fields | changes)


def test_the_key_is_not_printed() -> None:
    assert "secret" not in repr(LoadSpec(url="http://x", scenario=Scenario.RAG, api_key="secret"))


def test_base_url_has_no_version() -> None:
    for url in ("http://x:1", "http://x:1/", "http://x:1/v1", "http://x:1/v1/"):
        assert LoadSpec(url=url, scenario=Scenario.RAG).base_url == "http://x:1"
