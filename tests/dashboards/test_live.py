"""Every query and variable of every dashboard returns numbers from a real Prometheus under load."""

import json
import re
import time
from collections import Counter

import httpx
import pytest

from dashboards.generate import BOARDS, FOLDER
from tests.dashboards.asking import ask, fill, problem, targets
from tests.dashboards.exceptions import MAY_BE_EMPTY, ONLY_AFTER_A_FAULT
from tests.dashboards.fleet import Stage
from tests.dashboards.lint import PLACES
from tests.fakes.nvml import Simulated
from tests.support.prometheus import Prometheus
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.prometheus, pytest.mark.nightly, pytest.mark.waits]

SECONDS_TO_SHOW = 30.0


@pytest.mark.parametrize("uid", BOARDS)
def test_every_query_returns_numbers(uid: str, scraping: Prometheus) -> None:
    remaining = {key: target for key, target in targets(uid) if key not in MAY_BE_EMPTY}
    deadline = time.monotonic() + SECONDS_TO_SHOW
    while True:
        problems = {k: p for k, t in remaining.items() if (p := problem(scraping, t)) is not None}
        if not problems or time.monotonic() > deadline:
            break
        # A scrape may take longer than its second: until the next one, tables are empty.
        remaining = {key: remaining[key] for key in problems}
        time.sleep(1)
    assert not problems, "\n".join(f"{key}: {p}" for key, p in problems.items())


@pytest.mark.parametrize("uid", BOARDS)
def test_every_variable_has_values(uid: str, scraping: Prometheus) -> None:
    for variable in json.loads((FOLDER / f"{uid}.json").read_text())["templating"]["list"]:
        if variable["type"] != "query" or variable["name"] in PLACES:
            continue
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert match is not None
        response = httpx.get(
            f"{scraping.url}/api/v1/label/{match[2]}/values",
            params={"match[]": fill(match[1])},
            timeout=5,
        )
        assert response.json()["data"], variable["name"]


def test_the_stack_adds_up_to_the_card(scraping: Prometheus) -> None:
    queries = {key[2]: t for key, t in targets("kvscope-memory") if key[1] == 201}
    now = time.time()
    *stack, line = (ask(scraping, queries[letter], now) for letter in sorted(queries))
    parts = [series for answer in stack for series in answer]
    assert len(parts) == 10
    heights: Counter[float] = Counter()
    for series in parts:
        heights.update({at: float(value) for at, value in series["values"]})
    totals = {at: float(value) for at, value in line[0]["values"]}
    at = sorted(heights.keys() & totals.keys())[-2]  # the last may be between two scrapes
    assert heights[at] == totals[at]


def test_the_pool_adds_up_to_its_capacity(scraping: Prometheus) -> None:
    queries = {key[2]: t for key, t in targets("kvscope-kv-pool") if key[1] == 201}
    now = time.time() - 1
    states, capacity = (ask(scraping, queries[letter], now) for letter in "AB")
    for index in (0, len(capacity[0]["values"]) - 1):
        height = sum(float(series["values"][index][1]) for series in states)
        assert height == float(capacity[0]["values"][index][1])


def test_a_fault_fills_what_was_empty(stage: Stage, scraping: Prometheus) -> None:
    rule = (
        "groups: [{name: t, rules: [{alert: KvscopeTest, expr: up == 1, labels: {severity: %s}}]}]"
    )
    (stage.folder / "test.rules.yml").write_text(rule % "critical")
    httpx.post(f"{scraping.url}/-/reload", timeout=5).raise_for_status()
    hardware = Simulated(stage.folder / "nvml.state")
    lines = hardware.path.read_text().splitlines()
    hardware.become(dict(line.split("=", 1) for line in lines))
    hardware.raise_xid(0, 79)
    hardware.change({"gpu.0.temperature": "!999"})
    by_key = {key: t for uid in BOARDS for key, t in targets(uid)}
    faulty = [(key, by_key[key]) for key in ONLY_AFTER_A_FAULT]
    wait_for(
        lambda: all(problem(scraping, target) is None for _, target in faulty),
        f"all of {[key for key, _ in faulty]} show something",
        SECONDS_TO_SHOW,
    )
    hardware.change({"gpu.0.temperature": 52})
