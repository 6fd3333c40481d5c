"""Our engine as replicas on Ray Serve: what routing finds, what pages say, and what is replaced."""

import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ray.cluster import API, Cluster
from tests.ray.conftest import SERVED, SMALL
from tests.ray.conversations import Answered, complete
from tests.support.pages import sample
from tests.support.process import ROOT, Process, kvscope
from tests.support.prometheus import prometheus_with
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(600)]
REPLACED_SECONDS = 120.0
GUIDE = ROOT / "docs" / "guides" / "ray.md"
WORDS = "a question that is long enough for some blocks "


@pytest.fixture(scope="module")
def fleet(by_ours: Answered) -> Iterator[Process]:
    """Follows the replicas by the list that Prometheus reads."""
    with kvscope("fleet", "--port", "0", "--sidecars-from", f"{API}/targets") as process:
        yield process


def targets() -> dict[str, str]:
    """HOST:PORT of each replica's page, by replica."""
    listed = httpx.get(f"{API}/targets", timeout=30).json()
    return {each["labels"]["replica"]: each["targets"][0] for each in listed}


def pages() -> list[str]:
    return [httpx.get(f"http://{at}/metrics", timeout=30).text for at in targets().values()]


def total(name: str, **labels: str) -> float:
    """Over all replicas."""
    return sum(sample(page, name, engine="0", **labels) or 0.0 for page in pages())


def counted(fleet: Process) -> list[dict[str, Any]]:
    url = fleet.find(r"the fleet: (\S+)")
    answer = httpx.get(f"{url}/api/fleet", timeout=30).json()
    return [replica for replica in answer["replicas"] if replica["state"] == "counted"]


def test_the_router_finds_more_than_rays_own(by_rays_router: Answered, by_ours: Answered) -> None:
    assert by_rays_router.prompt_tokens == by_ours.prompt_tokens
    assert by_ours.share > by_rays_router.share + 0.1, (by_ours, by_rays_router)


def test_the_pages_say_what_the_clients_were_told(by_ours: Answered) -> None:
    assert len(targets()) == 2
    found = total("kvscope_prefix_cache_hit_tokens_total", phase="first")
    assert found == by_ours.cached_tokens
    assert all(sample(page, "kvscope_source_up") == 1 for page in pages())


@pytest.mark.prometheus
def test_prometheus_finds_each_replica_as_the_guide_says(by_ours: Answered, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (documented,) = (block for block in blocks if "http_sd_configs" in block)
    assert f"{API}/targets" in documented
    often = "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
    with prometheus_with(often + documented, tmp_path) as running:
        for replica in targets():
            running.wait_for(f'up{{job="kvscope",replica="{replica}"}}')
            running.wait_for(f'kvscope_source_up{{replica="{replica}"}}')
        found = "sum(kvscope_prefix_cache_hit_tokens_total{phase='first'})"
        assert running.ask(found) == [total("kvscope_prefix_cache_hit_tokens_total", phase="first")]
        assert running.ask('count(up{job="kvscope"})') == [2.0]


def test_both_replicas_have_work(by_ours: Answered) -> None:
    asked = [
        sample(page, "kvscope_prefix_cache_queried_tokens_total", phase="first") for page in pages()
    ]
    assert all(tokens and tokens > by_ours.prompt_tokens / 5 for tokens in asked), asked


def test_a_streamed_chat_finds_its_last_turn(by_ours: Answered) -> None:
    messages = [{"role": "user", "content": WORDS * 8}]
    body = {"messages": messages, "max_tokens": 4}
    usages = []
    for _ in range(2):
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with httpx.stream("POST", f"{API}/v1/chat/completions", json=streamed, timeout=60) as got:
            assert got.headers["content-type"].startswith("text/event-stream")
            text = got.read().decode()
        assert text.endswith("data: [DONE]\n\n")
        answer = httpx.post(f"{API}/v1/chat/completions", json=body, timeout=60).json()
        usages.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert min(usages) > len(WORDS) * 7, "it went where the streamed one had gone"


def test_refusals_are_the_engines(by_ours: Answered) -> None:
    refused = httpx.post(f"{API}/v1/completions", json={"prompt": 7}, timeout=60)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "prompt"
    other = complete("hello", model="another")
    assert other.status_code == 400
    assert "'demo'" in other.json()["error"]["message"]


def test_when_a_client_leaves_its_engine_stops(by_ours: Answered) -> None:
    aborted = "kvscope_requests_finished_total"
    before = total(aborted, reason="abort")
    body = {"prompt": "hello", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{API}/v1/completions", json=body, timeout=60) as streamed:
        next(streamed.iter_bytes())
    wait_for(lambda: total(aborted, reason="abort") == before + 1, "it is aborted", 30)
    wait_for(lambda: total("kvscope_requests", state="running") == 0, "nothing runs", 30)


def test_a_killed_replica_is_replaced(ray: Cluster, fleet: Process) -> None:
    wait_for(lambda: len(counted(fleet)) == 2, "the fleet counts both")
    before = targets()
    victim, pid = next(iter(ray.replicas("engines").items()))
    (engine,) = _children(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{engine}").exists(), "its engine ends with it")

    def is_replaced() -> bool:
        answer = complete(WORDS)
        assert answer.status_code in (200, 503), answer.text
        now = targets()
        return answer.status_code == 200 and len(now) == 2 and victim not in now

    wait_for(is_replaced, "another one takes its place", REPLACED_SECONDS)
    assert targets().items() & before.items(), "the other one stays as it was"
    wait_for(
        lambda: {each["sidecar"] for each in counted(fleet)} == set(targets().values()),
        "the fleet counts the new one instead",
        REPLACED_SECONDS,
    )


def test_a_replica_whose_engine_ended_is_replaced(ray: Cluster, by_ours: Answered) -> None:
    wait_for(lambda: len(ray.replicas("engines")) == 2, "both run", REPLACED_SECONDS)
    victim, pid = next(iter(ray.replicas("engines").items()))
    (engine,) = _children(pid)
    os.kill(engine, signal.SIGKILL)

    def is_replaced() -> bool:
        running = ray.replicas("engines")
        return len(running) == 2 and victim not in running

    wait_for(is_replaced, "Serve notices, and replaces it", REPLACED_SECONDS)
    wait_for(lambda: victim not in targets(), "the list follows")
    assert complete(WORDS).status_code == 200


@pytest.mark.weekly
def test_replicas_are_added_under_load_and_listed(ray: Cluster) -> None:
    """The last one: it has an application of its own."""
    ray.clear()
    scaling = {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 2}
    ray.deploy(SERVED, **{**SMALL, **scaling})
    assert len(targets()) == 1
    ended = threading.Event()

    def ask(number: int) -> None:
        draw = random.Random(number)
        while not ended.is_set():
            prompt = [draw.randrange(256) for _ in range(64)]  # which no cache has
            answer = complete(prompt, max_tokens=400, ignore_eos=True)
            assert answer.status_code in (200, 503), answer.text

    def all_work() -> bool:
        work = "kvscope_prefix_cache_queried_tokens_total"
        asked = [sample(page, work, engine="0", phase="first") for page in pages()]
        return len(asked) == 3 and all(asked)

    with ThreadPoolExecutor(12) as threads:
        asking = [threads.submit(ask, number) for number in range(12)]
        try:
            wait_for(all_work, "two are added, and have work", 2 * REPLACED_SECONDS)
        finally:
            ended.set()
    for each in asking:
        each.result()


def _children(pid: int) -> list[int]:
    """Its engine; the template's processes are below that."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if "kvscope" in Path(f"/proc/{child}/cmdline").read_text()
    ]
