"""Whole runs against a protocol peer."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kvscope.load import (
    BlockTokens,
    LoadSpec,
    Progress,
    Report,
    Scenario,
    ServerError,
    StoppedError,
    run,
)
from tests.load.peer import Peer


def make_spec(peer: Peer, scenario: Scenario = Scenario.CHAT, **changes: Any) -> LoadSpec:
    fields: dict[str, Any] = {"num_requests": 20, "concurrency": 4, "max_tokens": 6}
    return LoadSpec(url=peer.url, scenario=scenario, **fields | changes)


def run_load(spec: LoadSpec, **arguments: Any) -> Report:
    return asyncio.run(run(spec, **arguments))


def write_trace(tmp_path: Path, *requests: tuple[int, int, int, list[int]]) -> Path:
    path = tmp_path / "trace.jsonl"
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(names, r, strict=True))) + "\n" for r in requests))
    return path


@pytest.mark.parametrize("scenario", [s for s in Scenario if s is not Scenario.TRACE])
def test_every_scenario_succeeds_and_is_counted(peer: Peer, scenario: Scenario) -> None:
    report = run_load(make_spec(peer, scenario, period_seconds=0.2))
    assert (report.ok, report.failed, report.cancelled, report.skipped) == (20, {}, 0, 0)
    assert len(peer.bodies) == 20
    assert peer.max_in_flight <= 4
    assert report.model == "peer"
    assert report.prompt_tokens == peer.queried
    sent = [body["max_tokens"] for body in peer.bodies]
    assert report.output_tokens == sum(n for n in sent if isinstance(n, int))
    assert (report.cached_of_tokens, report.cached_tokens) == (peer.queried, peer.hit)
    assert peer.hit > 0
    assert report.first_token is not None
    assert report.first_token.count == 20
    assert report.notes == ()
    json.dumps(report.to_dict())


def test_a_trace_hits_what_its_tree_predicts(peer: Peer, tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path,
        (0, 1200, 32, [0, 1, 2]),
        (0, 1536, 64, [0, 1, 3]),
        (0, 700, 32, [0, 4]),
        (0, 1200, 32, [0, 1, 2]),
        (0, 60_000, 32, list(range(5, 123))),
    )
    report = run_load(
        make_spec(peer, Scenario.TRACE, trace_file=trace, length_scale=1 / 32, concurrency=1,
                  max_tokens=None, num_requests=None)
    )  # fmt: skip
    blocks = BlockTokens(length_scale=1 / 32)
    assert blocks.block_tokens == 16
    assert (report.ok, report.skipped) == (4, 1)
    assert [body["max_tokens"] for body in peer.bodies] == [1, 2, 1, 1]
    assert all(body["ignore_eos"] is True for body in peer.bodies)
    # [0, 1] of the second, [0] of the third, [0, 1] of the fourth: 2 is partial.
    assert report.cached_tokens == 16 * (2 + 1 + 2)


def test_truncate_sends_the_head_of_long_prompts(peer: Peer, tmp_path: Path) -> None:
    trace = write_trace(tmp_path, (0, 60_000, 320, list(range(118))))
    report = run_load(
        make_spec(peer, Scenario.TRACE, trace_file=trace, length_scale=1 / 32, truncate=True)
    )
    assert (report.ok, report.skipped, report.truncated) == (1, 0, 1)
    prompt = peer.bodies[0]["prompt"]
    assert isinstance(prompt, list)
    assert len(prompt) == 512 - 6
    assert prompt[:16] == BlockTokens(length_scale=1 / 32).block(0)


@pytest.mark.slow
def test_connections_that_the_server_may_be_closing_are_not_used_again(
    peer: Peer, tmp_path: Path
) -> None:
    trace = write_trace(tmp_path, *((at, 100, 1, [0]) for at in (0, 100, 3600, 3700)))
    spec = make_spec(peer, Scenario.TRACE, trace_file=trace, concurrency=1, num_requests=None)
    assert run_load(spec).ok == 4
    first, soon, late, later = peer.ports
    assert (first == soon, soon == late, late == later) == (True, False, True)


@pytest.mark.timed
def test_a_trace_keeps_its_times_at_its_speed(peer: Peer, tmp_path: Path) -> None:
    trace = write_trace(tmp_path, (9000, 100, 1, [0]), (12_000, 100, 1, [1]))
    replay = make_spec(peer, Scenario.TRACE, trace_file=trace, time_scale=10.0)
    assert 0.3 <= run_load(replay).elapsed_seconds < 2.0


def test_refused_requests_come_again(peer: Peer) -> None:
    peer.refusals = 3
    report = run_load(make_spec(peer, Scenario.RAG, num_requests=5))
    assert (report.ok, report.failed, report.retried) == (5, {}, 3)


def test_retries_are_bounded(peer: Peer) -> None:
    peer.refusals = 1000
    report = run_load(make_spec(peer, Scenario.RAG, num_requests=2))
    assert (report.ok, report.failed, report.retried) == (0, {"http_429": 2}, 10)
    assert report.failed_altogether


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"fail_status": 500}, "http_500"),
        ({"breaks": "error"}, "stream"),
        ({"breaks": "garbage"}, "stream"),
        ({"breaks": "cut"}, "incomplete"),
        ({"token_seconds": 0.3}, "timeout"),
    ],
)
def test_failures_are_counted_by_kind(peer: Peer, changes: dict[str, Any], kind: str) -> None:
    for name, value in changes.items():
        setattr(peer, name, value)
    report = run_load(
        make_spec(peer, Scenario.RAG, num_requests=3, timeout_seconds=0.5, max_tokens=8)
    )
    assert (report.ok, report.failed) == (0, {kind: 3})
    assert report.first_failures[kind]
    assert report.first_token is None
    assert report.cached_tokens is None


def test_unexposed_is_none_and_said(peer: Peer) -> None:
    peer.gives_usage, peer.max_model_len = False, None
    report = run_load(make_spec(peer, Scenario.RAG))
    assert report.cached_tokens is None
    assert report.prompt_tokens is None
    assert not report.output_tokens_counted
    assert any("max_model_len is not exposed" in note for note in report.notes)


def test_api_key_goes_to_the_api(peer: Peer) -> None:
    peer.api_key = "secret"
    with pytest.raises(ServerError, match="HTTP 401: wrong key"):
        run_load(make_spec(peer))
    assert run_load(make_spec(peer, Scenario.RAG, api_key="secret")).ok == 20
    assert set(peer.authorizations) == {"Bearer secret"}


def test_an_overloaded_open_loop_sheds(peer: Peer) -> None:
    peer.token_seconds = 0.05
    report = run_load(make_spec(peer, Scenario.RAG, rate=200.0, concurrency=2, num_requests=60))
    assert report.ok + report.shed == 60
    assert report.shed > 20
    assert peer.max_in_flight <= 2


@pytest.mark.timed
def test_poisson_arrivals_keep_their_rate(peer: Peer) -> None:
    report = run_load(make_spec(peer, Scenario.RAG, rate=100.0, concurrency=50, num_requests=100))
    assert (report.ok, report.shed) == (100, 0)
    assert 0.6 < report.elapsed_seconds < 2.5


@pytest.mark.timed
def test_duration_ends_the_start_of_requests_and_lets_them_finish(peer: Peer) -> None:
    peer.token_seconds = 0.05
    seen: list[Progress] = []
    report = run_load(
        make_spec(peer, Scenario.RAG, duration_seconds=0.6, num_requests=None),
        on_progress=seen.append,
    )
    assert report.ok == len(peer.bodies) > 0
    assert (report.cancelled, report.interrupted) == (0, False)
    assert 0.6 <= report.elapsed_seconds < 1.5
    assert seen[-1].share_done == 1.0
    assert max(progress.in_flight for progress in seen) <= 4


def test_stop_cancels_what_is_in_flight(peer: Peer) -> None:
    peer.token_seconds = 2.0
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    report = run_load(make_spec(peer, Scenario.RAG, num_requests=None), stop=stop)
    assert report.interrupted
    assert (report.ok, report.cancelled) == (0, 4)
    assert not report.failed_altogether


def test_stop_before_the_start(peer: Peer) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        run_load(make_spec(peer), stop=stop)


def test_a_bug_in_a_request_is_not_swallowed(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kvscope.load.report.Tally.succeeded", explode)
    with pytest.raises(ZeroDivisionError):
        run_load(make_spec(peer, Scenario.RAG))
