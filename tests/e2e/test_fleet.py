"""`kvscope fleet` over real replicas: what it counts, a replica that dies, keys, bad options."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.pages import sample
from tests.support.process import completed, forked_kvscope
from tests.support.waiting import wait_for
from tests.support.watched import sidecar, watched

SAME_MODEL = ("--served-model-name", "same")
PROMPT = "a beginning that all of them have " * 12
KEY = "a-key-of-the-sidecars"


def answer(fleet: str) -> dict[str, Any]:
    got: dict[str, Any] = httpx.get(f"{fleet}/api/fleet", timeout=20).json()
    return got


def steps(fleet: str) -> tuple[int, ...]:
    spaces = answer(fleet)["spaces"]
    names = ("own", "best", "anywhere", "seen", "asked")
    return tuple(sum(space[f"{name}_blocks"] for space in spaces) for name in names)


def states(fleet: str) -> dict[str, str]:
    return {replica["server"]: replica["state"] for replica in answer(fleet)["replicas"]}


def says(fleet: str, expected: dict[str, str]) -> Callable[[], bool]:
    return lambda: states(fleet) == expected


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.timeout(240)
def test_a_fleet_behind_a_sidecar_with_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    with (
        watched(tmp_path, "red", "blue", options=SAME_MODEL) as (red, blue),
        sidecar(red, blue, options=("--metrics-key-file", str(key))) as beside,
        forked_kvscope(
            *("fleet", "--port", "0", "--sidecar", f"both={beside.url}"),
            *("--token-file", str(key)),
        ) as process,
        forked_kvscope("fleet", "--port", "0", "--sidecar", f"both={beside.url}") as stranger,
    ):
        fleet = process.find(r"the fleet: (\S+)")
        wait_for(says(fleet, {"red": "counted", "blue": "counted"}), "both are counted")

        red.complete(PROMPT)
        wait_for(lambda: steps(fleet)[-1] > 0, "it is counted")
        *found, asked = steps(fleet)
        assert found == [0, 0, 0, 0]
        blue.complete(PROMPT)
        wait_for(lambda: steps(fleet)[-1] == 2 * asked, "it is counted")
        assert steps(fleet) == (0, asked, asked, asked, 2 * asked), "the router lost all of it"
        blue.complete(PROMPT)
        wait_for(lambda: steps(fleet)[-1] == 3 * asked, "it is counted")
        assert steps(fleet) == (asked, 2 * asked, 2 * asked, 2 * asked, 3 * asked)
        (space,) = answer(fleet)["spaces"]
        assert space["distinct_blocks"] >= space["duplicate_blocks"] >= asked
        page = httpx.get(f"{fleet}/metrics", timeout=20).text
        tokens = "kvscope_fleet_prefix_tokens_total"
        labels = {"model_name": "same", "name_space": space["name_space"]}
        assert sample(page, tokens, **labels, step="own") == asked * space["block_tokens"]
        assert "on one replica" in httpx.get(fleet, timeout=20).text

        red.kill()
        wait_for(says(fleet, {"red": "unknown", "blue": "counted"}), "red is missed", seconds=30)
        red.start(*SAME_MODEL)
        wait_for(says(fleet, {"red": "counted", "blue": "counted"}), "red is back", seconds=30)
        red.complete(PROMPT)
        wait_for(lambda: steps(fleet)[-1] == 4 * asked, "it is counted")
        assert steps(fleet) == (asked, 3 * asked, 3 * asked, 3 * asked, 4 * asked)

        other = stranger.find(r"the fleet: (\S+)")
        refused = httpx.get(f"{other}/metrics", timeout=20).text
        assert sample(refused, "kvscope_fleet_sidecar_up", sidecar="both") == 0
        errors = "kvscope_fleet_sidecar_errors_total"
        assert (sample(refused, errors, sidecar="both", kind="status") or 0) > 0
        assert answer(other) == {"one_of": 1, "spaces": [], "replicas": [], "apart": []}

        process.send(signal.SIGINT)
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "name the sidecars: --sidecar URL"),
        (["--sidecar", "ftp://10.0.0.1"], "does not begin with http://"),
        (["--sidecar", "a b=http://x:1"], "'a b' is not a name"),
        (["--sidecar", "a=http://x:1", "--sidecar", "a=http://x:2"], "a is given twice"),
        (["--sidecars-at", "service"], "expected NAME:PORT"),
        (["--sidecars-at", "a..b:80"], "a host with an empty part"),
        (["--sidecar", "http://x:1", "--token-file", "/missing"], "key cannot be read"),
        (["--sidecar", "https://x:1", "--sidecar-ca", "/missing"], "/missing"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: list[str], problem: str) -> None:
    ended = completed("fleet", "--port", "0", *options, seconds=60)
    assert ended.returncode == 2
    assert problem in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
