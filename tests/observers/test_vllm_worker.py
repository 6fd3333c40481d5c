"""The observer of a vLLM worker: what its stream says, and that it never harms its host."""

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kvscope_events.events import Hello, ObserverStopped, StartupProfiled
from kvscope_events.memory import DeviceMemorySampled
from kvscope_events.observers.endpoints import worker_endpoint
from kvscope_events.observers.vllm import worker as observed
from kvscope_events.observers.vllm.memory import (
    Sampler,
    device_of,
    profiled_memory,
    sizing_terms,
    weights_bytes,
)
from kvscope_events.observers.vllm.sizing import pool_bytes
from kvscope_events.observers.vllm.worker import install_worker_hooks
from kvscope_events.producers import VLLM_WORKER_EVENTS
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.producers import collect
from tests.observers.workers import Worker, Wrapper, events_until, started
from tests.support.waiting import wait_for


def test_a_worker_on_a_cpu_says_who_it_is_and_what_it_holds(wrapper: type[Wrapper]) -> None:
    made = started(wrapper, Worker(rank=3))
    events = events_until(StartupProfiled, rank=3)
    hello = [event for event in events if isinstance(event, Hello)][-1]
    assert (hello.server, hello.worker, hello.engine, hello.ready) == ("vllm", "3", "0", False)
    assert (hello.model_name, set(hello.tells)) == ("tiny", VLLM_WORKER_EVENTS)
    terms = next(event for event in events if isinstance(event, StartupProfiled)).memory_terms
    assert (terms["weights"], terms["kv_pool"]) == (8 * 4 * 4, 1024)
    assert terms.pop("total") == sum(terms.values())
    sample = next(e for e in events_until(DeviceMemorySampled, 3) if type(e) is DeviceMemorySampled)
    assert (sample.device_uuid, sample.allocated_bytes) == (None, None)
    assert made.worker.rank == 3


def test_an_older_worker_on_a_cpu_leaves_the_device_to_its_runner() -> None:
    cpu = torch.device("cpu")
    runner = SimpleNamespace(device=cpu)
    assert device_of(SimpleNamespace(device=None, model_runner=runner)) is cpu
    assert device_of(SimpleNamespace(device=cpu, model_runner=None)) is cpu
    assert device_of(SimpleNamespace(model_runner=None)) is None


def test_a_worker_that_cannot_tell_its_start_up_does_not_claim_to(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "machine_memory", dict)
    made = started(wrapper, Worker())
    (only,) = observed._observers.values()
    assert "StartupProfiled" not in only._hello.tells
    assert made is not None


@pytest.mark.parametrize("name", ["weights_bytes", "profiled_memory", "pool_bytes"])
def test_an_error_of_ours_ends_the_observer_and_not_the_worker(
    wrapper: type[Wrapper],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(observed, name, fails)
    worker = Worker()
    observer = started(wrapper, worker)
    (only,) = observed._observers.values()
    wait_for(lambda: not only._thread.is_alive(), "the thread ends")
    assert not {"load_model", "initialize_from_config"} & vars(worker).keys()
    assert "no longer observed" in caplog.text
    assert only._reason is not None
    assert observer.worker is worker


def test_a_beginning_that_fails_leaves_no_socket_and_no_hook(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(Worker, "initialize_from_config")  # of another vLLM
    worker = Worker()
    assert wrapper(worker).init_device() == "ready"
    assert "kvscope: this worker is not observed" in caplog.text
    assert not Path(worker_endpoint(0, 0).removeprefix("ipc://")).exists()
    assert "load_model" not in vars(worker)


def test_the_reason_is_the_last_message(wrapper: type[Wrapper]) -> None:
    made = started(wrapper, Worker())
    (only,) = observed._observers.values()
    reader = WireSubscriber(worker_endpoint(0, 0))
    collect(reader, lambda taken: bool(taken))
    only._fail("tried out")
    taken = collect(
        reader, lambda all: any(type(e) is ObserverStopped for one in all for e in one.batch.events)
    )
    reader.close()
    assert taken[-1].batch.events == [ObserverStopped("tried out")]
    assert made is not None


def test_a_failed_init_of_ours_leaves_the_answer(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observed, "engine_index", lambda config: 1 / 0)
    assert wrapper(Worker()).init_device() == "ready"
    assert "kvscope: this worker is not observed" in caplog.text


def test_a_directory_with_too_long_a_path_is_said_in_one_line(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", "/tmp/" + 100 * "x")
    assert wrapper(Worker()).init_device() == "ready"
    (line,) = caplog.messages
    assert "a unix socket takes 107" in line
    assert "Set KVSCOPE_OBSERVER_DIR to another directory" in line


def test_exceptions_of_the_worker_pass(wrapper: type[Wrapper]) -> None:
    class Broken(Worker):
        def load_model(self, *, load_dummy_weights: bool = False) -> str:
            raise MemoryError("no room")

    made = wrapper(Broken())
    made.init_device()
    with pytest.raises(MemoryError, match="no room"):
        made.worker.load_model()


def test_a_second_engine_of_a_process_takes_the_place_of_one_that_is_gone(
    wrapper: type[Wrapper], caplog: pytest.LogCaptureFixture
) -> None:
    first = started(wrapper, Worker())
    second = started(wrapper, Worker())
    assert "another process publishes there" in caplog.text, "both live"
    assert "load_model" not in vars(second.worker)
    caplog.clear()
    del first
    gc.collect()
    third = started(wrapper, Worker())
    assert caplog.text == ""
    assert third.worker.rank == 0


def test_hooks_are_installed_once(wrapper: type[Wrapper]) -> None:
    before = wrapper.init_device
    install_worker_hooks(wrapper)
    assert wrapper.init_device is before


def test_without_vllm_it_says_what_it_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    install_worker_hooks()
    assert "looked for WorkerWrapperBase in vllm.v1.worker" in caplog.text


def test_switched_off_it_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_OBSERVER", "off")
    untouched = type("Untouched", (Wrapper,), {})
    install_worker_hooks(untouched)
    assert "init_device" not in vars(untouched)


class Card:
    """torch's allocator on a card, as a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = 0
        self.peak = 0
        self.device = SimpleNamespace(type="cuda", index=3)
        properties = SimpleNamespace(uuid="1234-5678")
        monkeypatch.setattr(torch.cuda, "get_device_properties", self._of(properties))
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", self._of(None))

    def _of(self, answer: object) -> Callable[[object], object]:
        def ask(device: object) -> object:
            assert device is self.device, "the device is named, never the current one"
            return self._statistics() if answer is None else answer

        return ask

    def _statistics(self) -> dict[str, object]:
        self.peak = max(self.peak, self.live)
        return {
            "allocated_bytes": {"all": {"current": self.live, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.live + 5, "peak": self.peak + 5}},
            "num_alloc_retries": 1,
        }


def test_torchs_figures_are_those_of_the_workers_own_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Card(monkeypatch)
    sampler = Sampler(card.device)
    card.live = 40
    sampler.weights_bytes = 40
    first = sampler.sample()
    assert (first.device_uuid, first.allocated_bytes, first.reserved_bytes) == (
        "GPU-1234-5678",
        40,
        45,
    )
    assert (first.alloc_retries, first.ooms, first.active_bytes) == (1, None, None), "not kept"


def test_the_largest_step_is_known_once_it_is_larger_than_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Card(monkeypatch)
    sampler = Sampler(card.device)
    sampler.weights_bytes, card.live, card.peak = 40, 40, 70  # the profiling run took 30
    assert sampler.sample().activation_peak_bytes is None
    sampler.pool_follows()
    sampler.kv_pool_bytes, card.live = 25, 65
    assert sampler.sample().activation_peak_bytes is None, "70 were reached without a pool"
    card.live = 73
    assert sampler.sample().activation_peak_bytes == 8


def test_a_device_of_another_kind_has_no_figures_of_torch() -> None:
    sample = Sampler(SimpleNamespace(type="xpu")).sample()
    assert (sample.device_uuid, sample.allocated_bytes, sample.ooms) == (None, None, None)


def tensors(*fields: dict[str, int | bool]) -> SimpleNamespace:
    return SimpleNamespace(kv_cache_tensors=[SimpleNamespace(**f) for f in fields])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tensors({"size": 10}, {"size": 20}), 30),
        (tensors({"size": 10, "block_stride": 0}, {"size": 20, "block_stride": 0}), 30),
        (tensors({"size": 50, "block_stride": 5}, {"size": 50, "block_stride": 5}), 50),
        (tensors({"size": 50, "layer_stride": 5}, {"size": 50, "layer_stride": 5}), 50),
        (
            tensors(
                {"size": 50, "layer_stride": 5, "host_resident": False},
                {"size": 90, "layer_stride": 5, "host_resident": True},
            ),
            50,
        ),
    ],
    ids=["0.23", "0.24 apart", "0.24 packed", "0.29", "0.30 with host memory"],
)
def test_the_pool_of_each_release_counts_once(config: SimpleNamespace, expected: int) -> None:
    assert pool_bytes(config) == expected


def test_weights_that_a_cpu_kernel_has_packed_away_still_count() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Embedding(10, 8))
    packed = model[0]
    packed.weight = torch.nn.Parameter(torch.empty(0))
    packed.input_size_per_partition, packed.output_size_per_partition = 8, 4  # type: ignore[assignment]
    worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
    assert weights_bytes(worker) == 4 * (8 * 4 + 4 + 10 * 8)
    worker.model_runner.model_memory_usage = 12345
    assert weights_bytes(worker) == 12345, "as vLLM measured it on a device"


def test_terms_of_a_profiling_run_add_up() -> None:
    before_0_27 = SimpleNamespace(peak_activation_memory=7, non_torch_memory=3)
    since_0_27 = SimpleNamespace(peak_activation_memory=7, total_consumed=25)
    measured = {"total": 100, "in_use_at_start": 10, "requested": 90}
    for worker, expected in (
        (before_0_27, {"activation_peak": 7, "non_torch": 3}),
        (since_0_27, {"activation_peak": 7, "buffers": 2, "non_torch": 3}),
    ):
        found = profiled_memory(worker, 20, 22)
        assert found == expected
        terms = sizing_terms(measured | found, 20, 40)
        assert (terms.pop("total"), terms.pop("requested")) == (100, 90)
        assert sum(terms.values()) == 100


def test_terms_that_cannot_add_up_are_not_told() -> None:
    assert sizing_terms({"total": 100, "in_use_at_start": 10}, 20, 80) == {}
    assert sizing_terms({}, 20, 40) == {}, "the total is not known"
    assert profiled_memory(SimpleNamespace(), 20, None) == {}, "the run was left out"
