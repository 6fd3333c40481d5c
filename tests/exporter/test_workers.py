"""Streams of an engine's workers: memory alone, under the engine's labels, every series once."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvscope_events.bus import Subscription
from kvscope_events.events import (
    AnswerSent,
    DeviceMemorySampled,
    ObserverStopped,
    StartProgressed,
    StartupProfiled,
)
from kvscope_events.producers import VLLM_FRONT_END_EVENTS, VLLM_WORKER_EVENTS
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.machine.gpu import (
    DeviceSample,
    GpuSample,
    Identity,
    Memory,
    ProcessList,
    ProcessUse,
    Reading,
)
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.state.fleet.projected import EventsDocument
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.reply import ELSEWHERE
from kvscope_exporter.targets.target import Target
from kvscope_exporter.web.projection import Projections
from tests.exporter.machine import GIB, NOW_NS, UUID
from tests.exporter.page import FIXED_CLOCK, hello, put, value
from tests.exporter.scenario import play

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
TERMS = {"total": 100, "requested": 90, "weights": 60, "kv_pool": 25, "unclaimed": 15}
SCHEDULER, WORKERS = 10, (20, 21)
ROOM = {SCHEDULER: 50 * GIB, 20: 9 * GIB, 21: 50 * GIB}


def source_of(name: str, *events: Any, state_known: bool) -> tuple[InProcessSource, Subscription]:
    subscription = Subscription(64)
    put(subscription, -1, NOW_NS, *events)
    source = InProcessSource(subscription)
    source.endpoint = f"ipc:///{name}.sock"
    source.state_known = state_known
    return source, subscription


def scheduler(**changes: Any) -> Target:
    """An engine whose pool was created without terms, as by vLLM's scheduler."""
    source, subscription = source_of("engine", hello(pid=SCHEDULER, **changes), state_known=False)
    play(subscription)
    return Target(source, compat={"vllm"}, clock=FIXED_CLOCK)


def silent(pid: int = SCHEDULER) -> Target:
    """An engine that reports no device memory, as a scheduler of vLLM."""
    source, _ = source_of("engine", hello(pid=pid), state_known=True)
    return Target(source, compat={"vllm"}, clock=FIXED_CLOCK)


def worker(rank: int, *events: Any, **changes: Any) -> Target:
    greeting = hello(
        worker=str(rank),
        pid=WORKERS[rank],
        ready=False,
        tells=sorted(VLLM_WORKER_EVENTS),
        **changes,
    )
    source, _ = source_of(f"worker-{rank}", greeting, *events, state_known=True)
    return Target(source, compat={"vllm"}, clock=FIXED_CLOCK)


def sampled(rank: int, uuid: str = UUID) -> DeviceMemorySampled:
    return DeviceMemorySampled(
        WORKERS[rank],
        uuid,
        weights_bytes=6 * GIB,
        kv_pool_bytes=20 * GIB,
        allocated_bytes=27 * GIB,
        active_bytes=27 * GIB,
        reserved_bytes=28 * GIB,
        inactive_split_bytes=0,
        pinned_host_bytes=GIB,
    )


def host(pid: int) -> HostMemory:
    return HostMemory(
        resident=pid * GIB,
        limit=64 * GIB,
        usage=64 * GIB - ROOM[pid],
        unreclaimable=None,
    )


class OneCard:
    """Both workers and a stranger on one card; the scheduler uses none."""

    def read(self) -> Reading:
        memory = Memory(total=80 * GIB, reserved=GIB, used=70 * GIB, free=9 * GIB)
        uses = (ProcessUse(20, 30 * GIB), ProcessUse(21, 30 * GIB), ProcessUse(99, 9 * GIB))
        device = DeviceSample(
            identity=Identity(index=0, uuid=UUID, name="NVIDIA H100", pci_bus_id=""),
            up=True,
            memory=memory,
            processes=ProcessList(uses, memory, NOW_NS),
        )
        sample = GpuSample(
            taken_ns=NOW_NS,
            duration_seconds=0,
            driver_version="",
            cuda_version="",
            devices=(device,),
        )
        return Reading(sample=sample, last=sample, errors={}, xids={})


def page_of(*targets: Target) -> Exporter:
    return Exporter(targets, machine=Machine(gpu=OneCard(), host=host), clock=FIXED_CLOCK)


def component(page: Exporter, name: str) -> float | None:
    return value(page, "kvscope_gpu_memory_component_bytes", component=name)


def test_no_series_is_there_twice_and_nothing_of_the_engine_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = page_of(scheduler(), worker(1, sampled(1)), worker(0, sampled(0)))
    text = page.render(OPENMETRICS)[0].decode()
    assert list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    series = Counter(line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#")
    assert [line for line, count in series.items() if count > 1] == []
    assert "same labels" not in caplog.text
    alone = page_of(scheduler()).render(OPENMETRICS)[0].decode()
    of_engine = [line for line in alone.splitlines() if "kvscope_kv_" in line]
    assert len(of_engine) > 20
    assert [line for line in text.splitlines() if "kvscope_kv_" in line] == of_engine


def test_a_worker_shows_its_stream_with_the_folds_that_it_has_events_for() -> None:
    page = page_of(worker(0, sampled(0)))
    labels = {"endpoint": "ipc:///worker-0.sock", "model_name": "demo", "engine": "0"}
    assert value(page, "kvscope_source_state_known", **labels) == 1
    assert value(page, "kvscope_events_total", type="DeviceMemorySampled", **labels) == 1
    assert value(page, "kvscope_fold_errors_total", **labels) == 0
    assert value(page, "kvscope_engine_ready", **labels) is None
    assert value(page, "kvscope_engine_ready", model_name="demo", engine="0") == 0


def test_the_bytes_of_a_card_are_those_of_all_workers_on_it() -> None:
    page = page_of(silent(), worker(0, sampled(0)), worker(1, sampled(1)))
    assert component(page, "weights") == 12 * GIB
    assert component(page, "kv_pool") == 40 * GIB
    assert component(page, "non_torch") == 4 * GIB
    assert component(page, "other_processes") == 9 * GIB
    assert value(page, "kvscope_gpu_processes", owner="server") == 2
    assert value(page, "kvscope_gpu_memory_headroom_bytes") == 11 * GIB


def test_a_scheduler_that_uses_a_card_which_its_workers_report_is_the_servers() -> None:
    only = worker(0, sampled(0))
    assert value(page_of(only), "kvscope_gpu_processes", owner="server") == 1
    page = page_of(silent(pid=21), worker(0, sampled(0)))
    assert value(page, "kvscope_gpu_processes", owner="server") == 2


def test_host_memory_is_the_sum_over_the_processes_and_the_tightest_group() -> None:
    page = page_of(silent(), worker(0, sampled(0)), worker(1, sampled(1)))
    resident = (SCHEDULER + sum(WORKERS)) * GIB
    assert value(page, "kvscope_host_memory_resident_bytes") == resident
    assert value(page, "kvscope_host_memory_usage_bytes") == 55 * GIB
    assert value(page, "kvscope_host_memory_pinned_bytes") == 2 * GIB


def test_a_process_of_two_streams_counts_once() -> None:
    both = page_of(silent(pid=20), worker(0, sampled(0)))
    assert value(both, "kvscope_host_memory_resident_bytes") == 20 * GIB


def test_terms_of_start_up_are_rank_0s_where_the_pools_own_are_not_known() -> None:
    other = {**TERMS, "weights": 50, "unclaimed": 25}
    told = worker(0, StartupProfiled(TERMS)), worker(1, StartupProfiled(other))
    page = page_of(told[1], told[0])
    assert value(page, "kvscope_kv_pool_sizing_bytes", term="weights") == 60
    assert value(page, "kvscope_kv_pool_sizing_total_bytes") == 100
    assert value(page, "kvscope_kv_pool_sizing_requested_bytes") == 90
    beside = page_of(scheduler(), *told)
    own = value(page_of(scheduler()), "kvscope_kv_pool_sizing_bytes", term="weights")
    assert own != 60
    assert value(beside, "kvscope_kv_pool_sizing_bytes", term="weights") == own, "the pool's own"


@pytest.mark.parametrize("why", ["down", "stopped"])
def test_what_a_worker_told_is_not_shown_once_it_is_silent(why: str) -> None:
    last = [StartupProfiled(TERMS), ObserverStopped("tried")] if why == "stopped" else []
    told = worker(0, StartupProfiled(TERMS), *last)
    if why == "down":
        told.source.up = False  # type: ignore[misc]
    page = page_of(told)
    assert value(page, "kvscope_kv_pool_sizing_total_bytes") is None
    assert (value(page, "kvscope_host_memory_resident_bytes") is None) == (why == "down")


def test_two_engines_of_one_name_are_still_found_beside_their_workers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = page_of(scheduler(), worker(0), scheduler(), worker(1))
    page.render()
    assert caplog.text.count("only the first is shown") == 1


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_each_worker_shows_the_parts_of_its_start(server: str) -> None:
    second = 10**9
    begun = {"import": 0, "device": 20 * second, "weights": 25 * second}
    ended = begun | {"profile": 85 * second, "pool": 86 * second}
    done = StartProgressed(ended, 90 * second, weights_read_bytes=96, weights_file_bytes=100)
    workers = (worker(0, StartProgressed(begun), server=server), worker(1, done, server=server))
    page = page_of(*workers)
    name = "kvscope_start_phase_seconds"
    took = {"import": 20, "device": 5, "weights": 60, "profile": 1, "pool": 4}
    for phase, seconds in took.items():
        assert value(page, name, worker="1", phase=phase) == seconds
    assert value(page, name, worker="0", phase="device") == 5
    assert value(page, name, worker="0", phase="profile") is None
    assert value(page, name, worker="1", phase="warm_up") is None
    for part, size in {"read": 96, "file": 100}.items():
        assert value(page, f"kvscope_start_weights_{part}_bytes", worker="1") == size
        assert value(page, f"kvscope_start_weights_{part}_bytes", worker="0") is None
    still = value(page, name, worker="0", phase="weights")
    assert still is not None


def test_workers_of_an_engine_on_another_host_do_not_count_as_an_engine() -> None:
    began = StartProgressed({"import": 0, "weights": 10**9}, 2 * 10**9)
    page = page_of(
        *(worker(rank, began, sampled(rank), remote=True, server="vllm") for rank in (0, 1))
    )
    assert value(page, "kvscope_engine_ready") is None
    for rank in (0, 1):
        endpoint = f"ipc:///worker-{rank}.sock"
        known = value(page, "kvscope_source_state_known", source="remote", endpoint=endpoint)
        assert known == 1
        seconds = value(page, "kvscope_start_phase_seconds", worker=str(rank), phase="weights")
        assert seconds == 1
    assert value(page, "kvscope_host_memory_resident_bytes", model_name="demo") is not None
    (engine,) = page.answer(WHY).engines
    assert (engine.model_name, engine.engine, engine.answer) == ("demo", "0", None)
    assert engine.unknown == ELSEWHERE
    read = msgspec.msgpack.decode(Projections(lambda: {"": page}).document(""), type=EventsDocument)
    assert (read.parts, read.unknown) == ([], []), "no replica for `kvscope fleet`"


def front_end(number: int, *answers: AnswerSent) -> Target:
    greeting = hello(
        worker=f"api-{number}", pid=30 + number, tells=sorted(VLLM_FRONT_END_EVENTS), server="vllm"
    )
    source, _ = source_of(f"api-{number}", greeting, *answers, state_known=True)
    return Target(source, compat={"vllm"}, clock=FIXED_CLOCK)


def test_a_front_end_on_a_host_without_engines_does_not_count_as_one() -> None:
    greeting = hello(
        worker="api-0", tells=sorted(VLLM_FRONT_END_EVENTS), server="vllm", local_engines=0
    )
    source, _ = source_of("api-0", greeting, state_known=True)
    page = page_of(Target(source, compat={"vllm"}, clock=FIXED_CLOCK))
    assert value(page, "kvscope_source_state_known", source="remote") == 1
    assert value(page, "kvscope_engine_ready") is None


def test_front_ends_show_their_answers_and_are_no_processes_of_the_engine() -> None:
    sent = AnswerSent("generation", 200, True, 10**9, 2 * 10**8, 5 * 10**6, 3 * 10**6)
    refused = AnswerSent("generation", 429, True, 10**6)
    bare = page_of(scheduler(), worker(0))
    page = page_of(scheduler(), worker(0), front_end(0, sent, refused), front_end(1, refused))
    name = "kvscope_front_end_answers_total"
    assert value(page, name, front_end="api-0", route="generation", status="2xx") == 1
    assert value(page, name, front_end="api-1", route="generation", status="429") == 1
    assert value(page, name, front_end="api-1", route="other", status="5xx") == 0
    seconds = "kvscope_front_end_first_part_seconds"
    assert value(page, f"{seconds}_sum", front_end="api-0") == 0.2
    assert value(page, f"{seconds}_count", front_end="api-1") == 0
    beside = "kvscope_front_end_seconds_sum"
    assert value(page, beside, front_end="api-0", place="before_engine") == 0.005
    assert value(page, beside, front_end="api-0", place="after_engine") == 0.003
    for family in ("kvscope_host_memory_resident_bytes", "kvscope_engine_ready"):
        assert value(page, family) == value(bare, family) is not None
