"""`kvscope whatif --replicas` on traces as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import kvscope.cli.whatif as command
from kvscope.cli.app import app
from tests.engine.test_trace_hits import CONVERSATION
from tests.whatif.test_trace import assert_refused, document, kvscope, row, write

GOLDEN: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {
    (8, 2000): {
        "round-robin": (0.0796, 0.2509, 0.2509, 0.3664, 0.1890, 0.2629, 0.3320, 0.3593, 0.106),
        "least-loaded": (0.0758, 0.2520, 0.2520, 0.3664, 0.1882, 0.2627, 0.3320, 0.3593, 0.107),
        "prefix-hash": (0.2636, 0.2637, 0.2637, 0.3664, 0.2637, 0.2705, 0.3320, 0.3593, 0.000),
        "kv-aware": (0.2606, 0.2629, 0.2629, 0.3664, 0.2619, 0.2673, 0.3320, 0.3593, 0.002),
    },
    (8, 6000): {
        "round-robin": (0.1140, 0.3467, 0.3467, 0.3664, 0.3136, 0.3536, 0.3635, 0.3664, 0.193),
        "kv-aware": (0.3512, 0.3544, 0.3544, 0.3664, 0.3539, 0.3545, 0.3635, 0.3664, 0.004),
    },
    (16, 1000): {
        "round-robin": (0.0606, 0.2476, 0.2476, 0.3664, 0.1827, 0.2629, 0.3320, 0.3593, 0.113),
    },
    (4, 4000): {
        "round-robin": (0.1105, 0.2529, 0.2529, 0.3664, 0.1983, 0.2628, 0.3320, 0.3593, 0.092),
    },
}
"""By replicas and blocks of each: shares found by own, best, anywhere, seen, with tiers of half,
once, twice and four times all pools; duplicates. Of a prototype that draws at random except under
round robin."""


def figures(policy: dict[str, Any]) -> tuple[float, ...]:
    asked = policy["asked_blocks"]
    steps = [policy[f"{step}_blocks"] / asked for step in ("own", "best", "anywhere", "seen")]
    tiers = [tier["hit_blocks"] / asked for tier in policy["tiers"]]
    return (*steps, *tiers, policy["duplicates"])


@pytest.mark.slow
@pytest.mark.skipif(not CONVERSATION.is_file(), reason="no trace: set KVSCOPE_TRACE")
@pytest.mark.parametrize(("replicas", "capacity"), GOLDEN)
def test_the_conversation_trace(replicas: int, capacity: int) -> None:
    found = document(CONVERSATION, "--replicas", replicas, "--capacity", capacity)
    by_policy = {policy["policy"]: figures(policy) for policy in found["policies"]}
    for policy, expected in GOLDEN[replicas, capacity].items():
        shares, duplicates = by_policy[policy][:-1], by_policy[policy][-1]
        if policy == "round-robin":
            assert tuple(round(share, 4) for share in shares) == expected[:-1]
            assert round(duplicates, 3) == expected[-1]
        else:
            assert shares == pytest.approx(expected[:-1], abs=0.005), policy
            assert duplicates == pytest.approx(expected[-1], abs=0.005), policy


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two conversations that alternate in pairs, so that two replicas by turns see both."""
    paths = [[100 * (n // 2 % 2) + block for block in range(1 + n // 4)] for n in range(12)]
    return write(tmp_path, *[row(path, 1000 * n) for n, path in enumerate(paths)])


def routed(trace: Path, *arguments: object) -> Result:
    return kvscope(trace, "--replicas", 2, "--capacity", 50, *arguments)


def test_json_has_the_steps_of_each_policy(trace: Path) -> None:
    options = ("--policy", "kv-aware", "--policy", "round-robin", "--policy", "kv-aware")
    found = document(trace, "--replicas", 2, "--capacity", 50, *options)
    assert (found["kind"], found["replicas"], found["capacity_blocks"]) == ("trace", 2, 50)
    assert [policy["policy"] for policy in found["policies"]] == ["kv-aware", "round-robin"]
    by_turns = found["policies"][1]
    # Each replica sees each conversation in each of its three lengths, once: it finds one less.
    assert by_turns | {"tiers": [], "queue_seconds_p99": None} == {
        "policy": "round-robin",
        "own_blocks": 12,
        "best_blocks": 18,
        "anywhere_blocks": 18,
        "seen_blocks": 18,
        "asked_blocks": 24,
        "saved_tokens": 12 * 512,
        "imbalance": 1.0,
        "duplicates": 0.5,
        "queue_seconds_p50": 0.0,
        "queue_seconds_p99": None,
        "tiers": [],
    }
    assert by_turns["tiers"] == [
        {"blocks": blocks, "bytes": None, "hit_blocks": 18} for blocks in (50, 100, 200, 400)
    ]
    assert found["policies"][0]["own_blocks"] == 18
    assert found["doubts"] == []


def test_the_tables_end_in_sentences(trace: Path) -> None:
    said = " ".join(routed(trace).stdout.split())
    assert "12 requests, 24 blocks of 512 tokens asked for" in said
    assert "2 replicas of 50 blocks, each computing 8,000 prompt tokens a second" in said
    assert "Round robin finds 50.0 % of the blocks asked for; a hash of the first 1,024" in said
    assert "finds 75.0 %, with " in said
    assert "Without another router that takes a shared tier of 50 blocks." in said
    assert "session is left out: 12 of 12 requests name no session" in said
    assert " - running requests, which hold their blocks" in said


def test_a_hash_of_too_few_or_too_many_tokens_is_a_note(tmp_path: Path) -> None:
    alike = write(tmp_path, *[row([0, 1, 100 + number, 200 + number]) for number in range(60)])
    too_few = "prefix-hash gives one replica 2.0 times the mean work"
    too_many = "over half of the prompts have at most the 2,048 tokens that prefix-hash looks at"
    for tokens, says in ((1024, too_few), (1536, None), (2048, too_many)):
        options = ("--replicas", 2, "--capacity", 50, "--prefix-tokens", tokens)
        doubts = document(alike, *options, "--policy", "prefix-hash")["doubts"]
        assert [says is not None and doubt.startswith(says) for doubt in doubts] == [True] * (
            says is not None
        )


def test_a_tier_in_gigabytes_takes_the_bytes_of_a_block(trace: Path) -> None:
    sizes = ("--tier", 0.5, "--tier", 1, "--bytes-per-block", "64MiB")
    found = document(trace, "--replicas", 2, "--capacity", 50, *sizes)
    assert [tier["blocks"] for tier in found["policies"][0]["tiers"]] == [7, 14]
    assert "14 blocks (0.9395 GB)" in routed(trace, *sizes).stdout


def test_sessions_follow_the_trace(tmp_path: Path) -> None:
    def turn(number: int, **fields: object) -> str:
        return json.dumps(json.loads(row([number], 1000 * number)) | fields)

    named = [turn(n, session_id=f"s{n % 3}") for n in range(9)]
    parents = {0: -1, 1: -1, 2: 0, 3: 1, 4: 2, 5: 3}
    linked = [turn(n, chat_id=n, parent_chat_id=parents[n]) for n in range(6)]
    for lines in (named, linked):
        result = routed(write(tmp_path, *lines), "--policy", "session", "-o", "json")
        assert result.exit_code == 0, result.output
    assert_refused(
        routed(write(tmp_path, *named, turn(20)), "--policy", "session"),
        "--policy session: 1 of 10 requests name no session",
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--replicas", 2], "a trace has no pool: give the blocks of each replica's"),
        (["--replicas", 2, "--capacity", 5, "--capacity", 6], "give --capacity once"),
        (["--replicas", 2, "--capacity", 5, "--plot", "x.png"], "leave out --replicas"),
        (["--policy", "kv-aware"], "--policy needs --replicas N"),
        (["--tier", 5], "--tier needs --replicas N"),
        (["--replicas", 2, "--capacity", 5, "--tier", 5], "--tier: the bytes of a block are not"),
        (
            [*("--replicas", 2, "--capacity", 5, "--tier", 0), "--bytes-per-block", "1MB"],
            "--tier 0: a block takes 976.56 KiB, more than that",
        ),
        (["--replicas", 2, "--capacity", 5, "--bytes-per-block", "5KB"], "unknown unit 'KB'"),
        (["--replicas", 2, "--capacity", 5, "--policy", "recorded"], "a trace does not say where"),
    ],
)
def test_what_cannot_be_answered_is_one_line(trace: Path, options: list[object], says: str) -> None:
    assert_refused(kvscope(trace, *options), says)


def test_several_files_need_replicas(trace: Path) -> None:
    assert_refused(kvscope(trace, trace), "several files are replayed on replicas")
    assert_refused(routed(trace, trace), "name one trace, or the recordings of several")


def test_a_bad_trace_is_named_with_its_line(tmp_path: Path) -> None:
    cut = write(tmp_path, row([0, 1]), row([0, 1])[:-9])
    assert_refused(routed(cut), "trace.jsonl:2: Input data was truncated")


@pytest.fixture
def long_trace(tmp_path: Path) -> Path:
    return write(tmp_path, *[row([number % 500]) for number in range(1500)])


def test_a_long_replay_shows_how_far_it_is(
    long_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LINE_EVERY_SECONDS", 0.0)
    two = ("--policy", "round-robin", "--policy", "kv-aware", "-o", "json")
    lines = routed(long_trace, *two).stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "1,024 requests read",
        "1,024 requests replayed",
        "2,524 requests replayed",
    ]


def test_ctrl_c_leaves_no_table_and_no_traceback(
    long_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvscope.whatif.routing.replay.advance_all", interrupted)
    result = CliRunner().invoke(
        app, ["whatif", str(long_trace), "--replicas", "2", "--capacity", "5"]
    )
    assert (result.exit_code, result.output) == (130, "")
