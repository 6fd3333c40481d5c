"""The parts of a vLLM worker's start, as its stream reports them."""

import threading
import time
from typing import get_args

import pytest

from kvscope_events.memory import DeviceMemorySampled, StartProgressed
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
