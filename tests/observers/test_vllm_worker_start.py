"""The parts of a vLLM worker's start, as its stream reports them."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch

from kvscope_events.events import Hello
from kvscope_events.memory import DeviceMemorySampled, StartProgressed
from kvscope_events.observers.weights import WeightsRead
from kvscope_events.vocabulary import StartPhase
from tests.observers.workers import (
    Worker,
    Wrapper,
    events_until,
    hooked_wrapper,
    pool_of,
    started,
)
from tests.support.waiting import wait_for


def starts() -> list[StartProgressed]:
    return [event for event in events_until(StartProgressed) if isinstance(event, StartProgressed)]


def test_a_worker_says_what_it_does_while_it_starts(wrapper: type[Wrapper]) -> None:
    made = wrapper(Worker())
    made.init_device()
    assert starts()[-1].ended_ns is None
    assert [*starts()[-1].began_ns] == ["import", "device"]
    made.worker.load_model(load_dummy_weights=True)
    made.worker.determine_available_memory()
    wait_for(lambda: [*starts()[-1].began_ns][2:] == ["weights", "profile"])
    made.worker.initialize_from_config(pool_of(1000, 24))
    made.worker.compile_or_warm_up_model()
    wait_for(lambda: starts()[-1].ended_ns is not None)
    last = starts()[-1]
    assert [*last.began_ns] == [*get_args(StartPhase)]
    moments = [*last.began_ns.values(), last.ended_ns]
    assert moments == sorted(moments)  # type: ignore[type-var]
    assert 0 < time.time_ns() - moments[0] < 3600 * 10**9, "the process began"  # type: ignore[operator]
    made.worker.load_model(load_dummy_weights=True)  # once more, after the start
    assert starts()[-1] == last


@pytest.mark.usefixtures("wrapper")
def test_a_worker_that_waits_for_other_ranks_says_that_it_has_no_device() -> None:
    others = threading.Event()
    initialise = Wrapper.init_device

    def waits(self: Wrapper) -> str:
        others.wait()
        return initialise(self)

    made = hooked_wrapper(waits)(Worker())
    thread = threading.Thread(target=made.init_device)
    thread.start()
    assert [*starts()[-1].began_ns] == ["import", "device"]
    others.set()
    thread.join()
    assert made.worker.load_model(load_dummy_weights=True) == "loaded True"
    wait_for(lambda: "weights" in starts()[-1].began_ns, "it goes on")
    assert events_until(DeviceMemorySampled)


def test_a_worker_whose_device_failed_is_observed_when_it_is_tried_again(
    wrapper: type[Wrapper],
) -> None:
    def fails(self: Wrapper) -> str:
        raise RuntimeError("no device")

    first = Worker()
    with pytest.raises(RuntimeError, match="no device"):
        hooked_wrapper(fails)(first).init_device()
    second = started(wrapper, Worker())
    wait_for(lambda: starts()[-1].ended_ns is not None, "the second one has started")
    assert second.worker is not first


def test_a_worker_without_a_warm_up_has_started_with_its_pool(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Worker, "compile_or_warm_up_model")
    made = wrapper(Worker())
    made.init_device()
    made.worker.load_model(load_dummy_weights=True)
    made.worker.determine_available_memory()
    made.worker.initialize_from_config(pool_of(1000, 24))
    wait_for(lambda: starts()[-1].ended_ns is not None)
    assert "warm_up" not in starts()[-1].began_ns


@pytest.mark.parametrize(
    ("parallel", "meet_at", "is_remote"),
    [
        ({}, "tcp://192.0.2.7:29500", False),  # before an engine could span hosts without Ray
        ({"node_rank_within_dp": 0}, "tcp://192.0.2.7:29500", False),
        ({"node_rank_within_dp": 1}, "tcp://127.0.0.1:29500", True),
        ({"distributed_executor_backend": "ray"}, "tcp://127.0.0.1:29500", False),
        ({"distributed_executor_backend": "ray"}, "tcp://[::1]:29500", False),
        ({"distributed_executor_backend": "ray"}, "tcp://192.0.2.7:29500", True),
        ({"distributed_executor_backend": "ray"}, "env://", False),
    ],
)
def test_a_worker_says_whether_its_scheduler_is_on_another_host(
    wrapper: type[Wrapper], parallel: dict[str, Any], meet_at: str, is_remote: bool
) -> None:
    worker = Worker()
    worker.distributed_init_method = meet_at  # type: ignore[attr-defined]
    made = wrapper(worker)
    vars(made.vllm_config.parallel_config).update(parallel)
    made.init_device()
    hello = next(event for event in events_until(Hello) if isinstance(event, Hello))
    assert (hello.remote, hello.ready) == (is_remote, False)


class Loader:
    """The part of vLLM's DefaultModelLoader that matters here: two tensors in each file."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.may_go_on = threading.Event()

    def _prepare_weights(self, folder: str) -> tuple[str, list[str], bool]:
        return folder, [str(file) for file in self.files], True

    def _get_weights_iterator(self, source: str) -> Iterator[tuple[str, torch.Tensor]]:
        for file in self._prepare_weights(source)[1]:
            yield f"{Path(file).stem}.a", torch.zeros(100, dtype=torch.uint8)
            self.may_go_on.wait()
            yield f"{Path(file).stem}.b", torch.zeros(50, dtype=torch.uint8)


class OtherLoader:
    """A loader of another version, which reads in another way."""

    _prepare_weights = Loader._prepare_weights


def install(loader: type[Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As vLLM's; returns what is in the class."""
    module: Any = ModuleType("vllm.model_executor.model_loader.default_loader")
    module.DefaultModelLoader = loader
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return dict(vars(loader))


def test_a_worker_says_how_much_of_the_weights_it_has_read(
    wrapper: type[Wrapper], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = install(Loader, monkeypatch)
    files = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for file in files:
        file.write_bytes(bytes(160))  # ten of them a header
    loader, names = Loader(files), []

    class Reads(Worker):
        def load_model(self, *, load_dummy_weights: bool = False) -> str:
            names.extend(name for name, _ in loader._get_weights_iterator("folder"))
            return super().load_model(load_dummy_weights=load_dummy_weights)

    made = wrapper(Reads())
    made.init_device()
    assert starts()[-1].weights_file_bytes is None
    loading = threading.Thread(target=made.worker.load_model)
    loading.start()
    wait_for(lambda: starts()[-1].weights_read_bytes == 100, "the first tensor")
    assert starts()[-1].weights_file_bytes == 320
    loader.may_go_on.set()
    loading.join()
    made.worker.determine_available_memory()
    wait_for(lambda: "profile" in starts()[-1].began_ns)
    assert (starts()[-1].weights_read_bytes, starts()[-1].weights_file_bytes) == (300, 320)
    assert names == ["1.a", "1.b", "2.a", "2.b"]
    assert dict(vars(Loader)) == before, "the loader is as it was"


def test_a_loader_that_reads_in_another_way_is_left_alone(
    wrapper: type[Wrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = install(OtherLoader, monkeypatch)
    made = started(wrapper, Worker())
    wait_for(lambda: starts()[-1].ended_ns is not None)
    assert starts()[-1].weights_read_bytes is None
    assert dict(vars(OtherLoader)) == before
    assert made.worker.device is not None, "it is still there"


def test_weights_of_another_form_are_loaded_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Loader):
        def _get_weights_iterator(self, source: str) -> Iterator[Any]:
            self._prepare_weights(source)
            yield from (None, ("a", None))

    install(Odd, monkeypatch)
    (tmp_path / "1").write_bytes(bytes(160))
    weights = WeightsRead("vllm.model_executor.model_loader.default_loader")
    weights.begin()
    assert list(Odd([tmp_path / "1"])._get_weights_iterator("folder")) == [None, ("a", None)]
    weights.end()
    assert (weights.read_bytes, weights.file_bytes) == (None, 160)
