"""A real vLLM under load, observed through `kvscope run`: every block, every counter."""

import http.client
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from kvscope_alerts.bare.packs import groups
from kvscope_alerts.bare.server import VLLM
from kvscope_alerts.rule import Record
from kvscope_events.wire.subscriber import WireSubscriber
from tests.alerts.bare.pages import missing
from tests.dashboards.promql import read
from tests.support.pages import sample
from tests.support.prometheus import Prometheus
from tests.support.scraped import Scraped, scraped
from tests.support.waiting import wait_for
from tests.vllm import front_end
from tests.vllm.bare import names_of_the_board, scraped_by_prometheus
from tests.vllm.conftest import Unobserved
from tests.vllm.counted_otherwise import AFTER_A_STOP, WHEN_CLIENTS_LEAVE
from tests.vllm.counters import disagreements, total
from tests.vllm.live_frames import LiveFrames, live_frames
from tests.vllm.live_replay import differences
from tests.vllm.observed import (
    PROMPTS,
    SMALL,
    Observed,
    ended,
    leave_early,
    load,
    observed,
    outgrow,
    reset_while_it_runs,
    switch_off_and_on,
)
from tests.vllm.server import kvscope_command

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]


FINISHED = "kvscope_requests_finished_total"


@pytest.fixture(scope="module")
def vllm(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    """The tests below build on each other: one server, started once, ended by the last of them."""
    folder = tmp_path_factory.mktemp("plain")
    model = models("llama")
    with observed(vllm_python, model, folder, *SMALL, KVSCOPE_OBSERVER_TENANT="X-User") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def pages(vllm: Observed) -> Iterator[Scraped]:
    """The pages that were served meanwhile."""
    with scraped(vllm.url) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def shown(vllm: Observed) -> Iterator[LiveFrames]:
    """The live view meanwhile, until a test compares it."""
    with live_frames(vllm.url) as running:
        yield running


def test_it_returns_the_tokens_of_an_unobserved_one(vllm: Observed, unobserved: Unobserved) -> None:
    answers = [answer for prompt in PROMPTS for answer in vllm.server.complete(prompt, 24)]
    assert answers == unobserved.answers
    vllm.assert_equal()


def test_every_step_and_every_counter_under_load(vllm: Observed) -> None:
    load(vllm.server)
    assert vllm.assert_equal() > 300
    ours, theirs = vllm.page(), vllm.server.page()
    preempted = total(theirs, "vllm:num_preemptions_total")
    assert preempted > 0, f"the pool was large enough: {vllm.replay.kinds}"
    assert vllm.replay.kinds["BlocksEvicted"] > 0
    assert total(theirs, "vllm:prefix_cache_hits_total") > 0
    assert disagreements(ours, theirs) == []
    assert vllm.value("kvscope_kv_ledger_imbalance_blocks") == 0


def test_the_map_is_vllms_pool(vllm: Observed, shown: LiveFrames) -> None:
    seeds = itertools.count(100)
    while shown.problem is None and len(shown.maps) < 200:
        outgrow(vllm.server, next(seeds))
    vllm.assert_equal()
    shown.assert_maps_are(vllm.replay)


def test_parallel_samples(vllm: Observed) -> None:
    choices = vllm.server.complete(PROMPTS[1] * 2, 40, n=4, temperature=1.0)
    assert len({tuple(choice) for choice in choices}) == 4
    vllm.assert_equal()
    assert disagreements(vllm.page(), vllm.server.page()) == []


def test_a_plan_begins_with_what_it_serves(vllm: Observed) -> None:
    (served,) = httpx.get(f"{vllm.server.url}/v1/models", timeout=30).json()["data"]
    plans = []
    for source in (("--from", vllm.server.url), (served["root"], "--max-model-len", "1024")):
        options = ("--gpu", "H200", "-o", "json")
        done = subprocess.run(
            kvscope_command("plan", *source, *options), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        plans.append(json.loads(done.stdout))
    from_server, from_checkpoint = (plan["bytes"] for plan in plans)
    assert from_server["per_sequence"] == from_checkpoint["per_sequence"]
    assert from_server["per_token"] == from_checkpoint["per_token"]


def test_resets_while_idle_and_while_it_runs(vllm: Observed) -> None:
    resets = vllm.replay.kinds["PrefixCacheReset"]
    vllm.server.reset()
    vllm.assert_equal()
    assert vllm.value("kvscope_kv_blocks", state="cached") == 0
    assert vllm.replay.kinds["PrefixCacheReset"] == resets + 1
    before = total(vllm.server.page(), "vllm:num_preemptions_total")
    for tries in range(1, 11):  # on a busy machine all may have ended when the reset comes
        reset_while_it_runs(vllm)
        vllm.assert_equal()
        assert vllm.replay.kinds["PrefixCacheReset"] == resets + 1 + tries
        if total(vllm.server.page(), "vllm:num_preemptions_total") > before:
            break
    assert total(vllm.server.page(), "vllm:num_preemptions_total") > before
    assert disagreements(vllm.page(), vllm.server.page()) == []


AFTER_THE_STOP = frozenset(AFTER_A_STOP)
"""From here on these differ, so what has to be equal is compared above."""
ON_ITS_WAY = AFTER_THE_STOP | frozenset(WHEN_CLIENTS_LEAVE)


def test_what_ends_at_a_stop_string_is_no_abort(vllm: Observed) -> None:
    before = vllm.page()
    told: Counter[str] = Counter()
    for number in range(20):
        body = {"stop": ["a", "e", "t", "\x00"], "temperature": 1.0, "max_tokens": 60}
        prompt = f"{number} {PROMPTS[number % 8]}"
        answer = vllm.server.post("/v1/completions", model="tiny", prompt=prompt, **body)
        told.update(choice["finish_reason"] for choice in answer["choices"])
    assert told["stop"] > 0, told
    vllm.assert_equal()
    ended_by = {reason: told[reason] for reason in ("stop", "length", "abort", "error")}

    def grown() -> dict[str, float]:
        pages = before, vllm.page()
        return {
            reason: (sample(pages[1], FINISHED, reason=reason) or 0)
            - (sample(pages[0], FINISHED, reason=reason) or 0)
            for reason in ended_by
        }

    # A page that is rendered beside another scrape may be a moment older.
    wait_for(lambda: grown() == ended_by, f"{ended_by} have ended")
    after = vllm.page()
    assert sample(after, FINISHED, reason="stop_string_or_abort") is None
    assert disagreements(after, vllm.server.page(), without=AFTER_THE_STOP) == []


def test_first_tokens_and_durations_are_those_of_the_api_server(vllm: Observed) -> None:
    time.sleep(1.1)  # a page is read again after a second
    ours, theirs = vllm.page(), vllm.server.page()
    for own, other in (
        ("kvscope_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
        ("kvscope_request_duration_seconds", "vllm:e2e_request_latency_seconds"),
    ):
        for part in ("sum", "count"):
            assert sample(ours, f"{own}_{part}") == sample(theirs, f"{other}_{part}")


def test_clients_that_go_away(vllm: Observed) -> None:
    finished = vllm.replay.kinds["SequenceFinished"]
    clients = [threading.Thread(target=leave_early, args=(vllm, number)) for number in range(24)]
    for client in clients:
        client.start()
        time.sleep(0.03)
    for client in clients:
        client.join()
    vllm.assert_equal()
    assert vllm.replay.kinds["SequenceFinished"] == finished + len(clients)
    assert (vllm.value(FINISHED, reason="abort") or 0) > 0
    assert vllm.value("kvscope_kv_blocks", state="active") == 0
    ours, theirs = vllm.page(), vllm.server.page()
    assert disagreements(ours, theirs, without=ON_ITS_WAY) == []
    assert sample(theirs, "vllm:request_success_total", finished_reason="abort") == 0


def test_it_serves_on_after_its_stacks_were_asked_for_and_after_sigusr1(vllm: Observed) -> None:
    """To `kvscope run`, to vLLM's server and to its engine core, again and again under load."""
    sockets = vllm.replay.endpoint.rpartition("/")[0]
    front = re.search(r"started .* \(pid (\d+)\)", vllm.server.log)
    assert front is not None
    said = ""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(load, vllm.server)
        while not running.done():
            asked = subprocess.run(
                kvscope_command("observer", "stacks", f"{sockets}/*"),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert asked.returncode == 0, asked.stderr
            said += asked.stdout
            core = re.search(r"engine-0\.sock: process (\d+)\n", asked.stdout)
            assert core is not None, asked.stdout
            for pid in (vllm.server.process.pid, int(front[1]), int(core[1])):
                for _ in range(3):
                    os.kill(pid, signal.SIGUSR1)
        running.result()
    assert "in run_busy_loop" in said
    assert "(kvscope-wire) (most recent call first):" in said
    for pid in (front[1], core[1]):
        assert f"kvscope: the stacks of process {pid}\n" in vllm.server.log
    assert vllm.server.alive()
    assert vllm.assert_equal() > 300
    assert disagreements(vllm.page(), vllm.server.page(), without=ON_ITS_WAY) == []


def test_who_has_left_is_no_longer_running(vllm: Observed) -> None:
    """Alerts for a bare vLLM take an engine with requests and no tokens for one that hangs."""
    page = vllm.server.page()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert total(page, name) == 0


NOT_HERE = re.compile(r"vllm:(gpu_|time_per_output_token|spec_decode_|kv_block_)")
"""Old names, and what is switched off here."""


def test_rules_and_board_for_a_bare_vllm_ask_for_what_it_has(vllm: Observed) -> None:
    page = vllm.server.page()
    assert missing(VLLM, page) == []
    lacking = names_of_the_board() - read([page]).kinds.keys() - {"up"}
    assert {name for name in lacking if not NOT_HERE.match(name)} == set()


@pytest.fixture(scope="module")
def watched(vllm: Observed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with scraped_by_prometheus(vllm.server.url, folder) as running:
        yield running


@pytest.mark.prometheus
def test_rules_for_a_bare_vllm_find_what_they_ask_for(vllm: Observed, watched: Prometheus) -> None:
    """Every recorded rate has a value, and nothing fires."""
    records = [
        rule.record for group in groups(VLLM) for rule in group.rules if isinstance(rule, Record)
    ]

    def all_recorded() -> bool:
        vllm.server.complete(PROMPTS[0])
        return all(watched.answers(name) for name in records)

    wait_for(all_recorded, f"{records} have values", 60)
    told = httpx.get(f"{watched.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
    rules = [rule for group in told for rule in group["rules"]]
    assert len(rules) == sum(len(group.rules) for group in groups(VLLM))
    assert {rule["health"] for rule in rules} == {"ok"}
    assert watched.ask('ALERTS{alertstate="firing"}') == []


def test_every_page_comes_out_of_its_recording_again(
    vllm: Observed, pages: Scraped, tmp_path: Path
) -> None:
    """With the readings of vLLM's own page; and all that reads a recording reads this one."""
    load(vllm.server, requests=20)
    recording = pages.save(tmp_path)
    served = [scrape.page for scrape in pages.scrapes]
    assert pages.assert_replayed(recording) > 200 * len(served)
    assert any(b'kvscope_source_up{endpoint="http' in page for page in served)
    file = str(recording)
    for arguments in (
        ("rec", "play", file, "--at", "-5s"),
        ("why", file, "--at", "-5s"),
        ("rec", "export", file, "--openmetrics", f"{tmp_path}/om", "--html", f"{tmp_path}/html"),
        ("rec", "export", file, "--perfetto", f"{tmp_path}/trace"),
    ):
        done = subprocess.run(
            kvscope_command(*arguments), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, arguments
        assert done.stderr == "", arguments
    assert b"kvscope_kv_blocks{" in (tmp_path / "om").read_bytes()
    assert (tmp_path / "trace").stat().st_size > 10_000


def test_answers_of_the_api_server_are_those_that_clients_got(vllm: Observed) -> None:
    """Statuses exactly, and the time to the first token within 2 ms."""
    reader = WireSubscriber(vllm.replay.endpoint.replace("engine-0", "api-0"))
    host, _, port = vllm.server.url.removeprefix("http://").partition(":")
    before = vllm.page()
    began_ns = time.monotonic_ns()
    with closing(http.client.HTTPConnection(host, int(port), timeout=60)) as client:
        statuses, firsts = front_end.ask_in_all_ways(client, PROMPTS)
    assert {status for _, status in statuses} == {200, 400, 404}
    sent_answers = front_end.answers_sent(reader, began_ns, statuses.total())
    reader.close()
    assert Counter((one.route, one.status) for one in sent_answers) == statuses
    assert all(one.is_complete for one in sent_answers)
    seen = [one.first_ns / 1e9 for one in sent_answers if one.first_ns is not None]
    assert len(seen) == len(firsts) > 20
    # The median on an idle machine; a client that waits for a core sees its token later.
    apart = statistics.quantiles((abs(a - b) for a, b in zip(firsts, seen, strict=True)), n=10)
    assert apart[0] < 0.002, apart
    front_end.assert_parts_add_up(sent_answers)
    front_end.assert_counted(before, vllm.page(), statuses)


def test_requests_in_the_api_server_show_where_they_are(vllm: Observed) -> None:
    front_end.see_a_request_pass(vllm, PROMPTS[:4])


def test_a_header_names_the_tenant_of_a_request_by_its_hash(vllm: Observed) -> None:
    front_end.assert_header_names_tenant(vllm, PROMPTS[0])


@pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.weekly)])
def test_off_and_on_many_times_tokens_stay_and_counters_go_on(vllm: Observed, times: int) -> None:
    order = "kvscope: off: an operator switched it off"
    stopped, ordered = vllm.replay.kinds["ObserverStopped"], vllm.server.log.count(order)
    expected = [answer for prompt in PROMPTS for answer in vllm.server.complete(prompt, 24)]
    rounds = 0
    stopping = threading.Event()

    def one_by_one() -> None:
        nonlocal rounds
        while not stopping.is_set():
            answers = [answer for prompt in PROMPTS for answer in vllm.server.complete(prompt, 24)]
            assert answers == expected
            rounds += 1

    def many() -> None:
        while not stopping.is_set():
            load(vllm.server, requests=20)

    for serve in (one_by_one, many):
        stopping.clear()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(serve)
            try:
                for _ in range(times // 2):
                    switch_off_and_on(vllm)
            finally:
                stopping.set()
            running.result()
    assert rounds > 0
    assert vllm.replay.kinds["ObserverStopped"] == stopped + times
    assert vllm.server.log.count(order) == ordered + times
    vllm.server.wait_idle()
    wait_for(vllm.folded, "all is folded")
    since = vllm.page(), vllm.server.page()
    load(vllm.server, requests=20, seed=7)
    vllm.server.wait_idle()
    wait_for(
        lambda: (
            disagreements(vllm.page(), vllm.server.page(), without=ON_ITS_WAY, since=since) == []
        ),
        "counters have grown by as much as vLLM's",
    )
    lines = vllm.witnessed()[0]
    assert differences(vllm.replay, lines) == []
    assert len(vllm.replay.moments) > 100
    assert vllm.replay.contradictions == []


def test_ctrl_c_ends_it_as_it_ends_vllm(vllm: Observed) -> None:
    assert ended(vllm.server, vllm.server.press_ctrl_c) == 0


@pytest.mark.prometheus
def test_the_end_of_a_bare_vllm_is_told(watched: Prometheus) -> None:
    watched.wait_for('ALERTS{alertname="VllmTargetDown",alertstate="firing"}')
