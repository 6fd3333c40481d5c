"""The ledger sums to the total, to the byte, in every state; or it is not there."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvscope_events.events import DeviceMemorySampled
from kvscope_exporter.machine.gpu import (
    GpuPoller,
    Memory,
    ProcessList,
    ProcessUse,
    components,
    headroom,
    owners,
)
from tests.fakes.nvml import GIB, MIB, STATES, Simulated
from tests.fakes.nvml.states import UUID
from tests.gpu.scrapes import FAST, SERVER_PID, Scrapes, torch_sample
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]
TEN = {
    *("driver_reserved", "free", "weights", "kv_pool", "torch_live_other", "torch_pending"),
    *("torch_cached", "non_torch", "other_processes", "unattributed"),
}
FOREIGN = {"driver_reserved", "free", "server_process", "other_processes", "unattributed"}
UNSPLIT = {*TEN, "unsplit"} - {"non_torch", "other_processes", "unattributed"}

sizes = st.integers(0, 200 * GIB)
maybe = st.none() | sizes
memories = st.builds(
    lambda reserved, used, free: Memory(
        total=reserved + used + free, reserved=reserved, used=used, free=free
    ),
    sizes,
    sizes,
    sizes,
)
lists = st.none() | st.builds(
    lambda memory, entries: ProcessList(
        tuple(ProcessUse(pid, used) for pid, used in entries.items()), memory, 0
    ),
    memories,
    st.dictionaries(st.integers(1, 5), maybe, max_size=5),
)
torches = st.none() | st.builds(
    DeviceMemorySampled,
    pid=st.integers(1, 5),
    device_uuid=st.just("GPU-0"),
    weights_bytes=sizes,
    kv_pool_bytes=sizes,
    allocated_bytes=maybe,
    active_bytes=maybe,
    reserved_bytes=maybe,
    inactive_split_bytes=maybe,
)


@given(memory=memories, listed=lists, torch=torches, pids=st.sets(st.integers(1, 5), max_size=2))
def test_components_sum_to_the_total_whatever_is_known(
    memory: Memory, listed: ProcessList | None, torch: DeviceMemorySampled | None, pids: set[int]
) -> None:
    parts = components(memory, owners(listed, pids), torch)
    assert parts is not None
    assert sum(parts.values()) == memory.total
    assert parts.keys() in (TEN, FOREIGN, UNSPLIT, {"driver_reserved", "free", "unsplit"})


@pytest.mark.parametrize("told", [True, False], ids=["torch", "no_torch"])
@pytest.mark.parametrize("name", STATES)
def test_the_exported_ledger_sums_on_every_machine(
    hardware: Simulated, start: Start, name: str, told: bool
) -> None:
    hardware.become(STATES[name]())
    scrapes = Scrapes(start())
    if told:
        scrapes.tell(torch_sample())
    totals = scrapes.series("kvscope_gpu_memory_total_bytes")
    for (gpu, uuid), total in totals.items():
        assert sum(scrapes.components(uuid).values()) == total, gpu
    ups = scrapes.series("kvscope_gpu_up")
    assert bool(totals) == (name != "mig")
    assert {key for key, up in ups.items() if up} >= totals.keys()


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # each example sets the hardware
)
@given(
    used=st.integers(0, 100 * GIB),
    processes=st.dictionaries(
        st.sampled_from((SERVER_PID, 7, 8)), st.none() | st.integers(0, 30 * GIB), max_size=3
    ),
    torch=st.booleans(),
)
def test_the_exported_ledger_sums_through_the_real_binding(
    polled: tuple[Simulated, GpuPoller],
    used: int,
    processes: dict[int, int | None],
    torch: bool,
) -> None:
    simulated, poller = polled
    listed = ",".join(
        f"{pid}:{'none' if size is None else size}" for pid, size in processes.items()
    )
    simulated.change({"gpu.0.memory.used": used, "gpu.0.processes": listed})
    scrapes = Scrapes(poller)
    if torch:
        scrapes.tell(torch_sample())

    def caught_up() -> bool:
        sample = poller.read().sample
        assert sample is not None
        (device,) = sample.devices
        assert device.memory is not None
        seen = device.processes
        return (
            seen is not None
            and seen.memory.used == used
            and device.memory.used == used
            and {p.pid: p.used_bytes for p in seen.processes} == processes
        )

    wait_for(caught_up)
    total = scrapes.value("kvscope_gpu_memory_total_bytes")
    assert sum(scrapes.components().values()) == total


@pytest.fixture
def polled(hardware: Simulated, start: Start) -> tuple[Simulated, GpuPoller]:
    return hardware, start()


def test_the_ten_components_are_what_they_say(hardware: Simulated, start: Start) -> None:
    hardware.change({"gpu.0.processes": f"4242:{29 * GIB},77:{GIB}"})
    hardware.change({"gpu.0.memory.used": 30 * GIB + 18 * MIB})
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample())
    assert scrapes.components() == {
        "driver_reserved": 614 * MIB,
        "free": (143771 - 614 - 18) * MIB - 30 * GIB,
        "weights": 16 * GIB,
        "kv_pool": 8 * GIB,
        "torch_live_other": GIB,
        "torch_pending": 4096,
        "torch_cached": 2 * GIB - 4096,
        "non_torch": 2 * GIB,
        "other_processes": GIB,
        "unattributed": 18 * MIB,
    }


def test_a_foreign_server_is_one_component(start: Start) -> None:
    assert Scrapes(start()).components().keys() == FOREIGN


def test_without_bytes_of_processes_the_rest_is_one_component(
    hardware: Simulated, start: Start
) -> None:
    hardware.change({"gpu.0.processes": "4242:none"})
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample())
    parts = scrapes.components()
    assert parts.keys() == UNSPLIT
    assert parts["unsplit"] == 31157387264 - 27 * GIB
    assert scrapes.value("kvscope_gpu_processes", owner="server") == 1
    assert scrapes.value("kvscope_gpu_process_memory_bytes", owner="server") is None


def test_a_server_that_is_not_listed_is_unknown_not_zero(hardware: Simulated, start: Start) -> None:
    hardware.change({"gpu.0.processes": "991:31138512896"})  # the host's pid of it, say
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample())
    assert scrapes.components().keys() == UNSPLIT
    assert not scrapes.series("kvscope_gpu_processes")


def test_an_engine_on_another_device_has_nothing_here(hardware: Simulated, start: Start) -> None:
    hardware.change({"gpu.0.processes": "77:31138512896"})
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample(device_uuid=None))
    assert scrapes.value("kvscope_gpu_processes", owner="server") == 0
    assert scrapes.components()["other_processes"] == 31138512896


def test_lists_that_contradict_themselves_are_not_believed(
    hardware: Simulated, start: Start
) -> None:
    scrapes = Scrapes(start())
    hardware.change({"gpu.0.processes": f"4242:{200 * GIB}"})
    wait_for(lambda: not scrapes.series("kvscope_gpu_process_memory_bytes"))
    assert scrapes.components().keys() == {"driver_reserved", "free", "unsplit"}


def test_memory_and_processes_of_the_ledger_are_of_one_moment(
    hardware: Simulated, start: Start
) -> None:
    """Between two process lists a neighbour's growth is in `free`, not yet in the ledger."""
    scrapes = Scrapes(start(replace(FAST, processes=60, sensors=60)))
    hardware.change({"gpu.0.memory.used": 60 * GIB, "gpu.0.processes": f"4242:{60 * GIB}"})
    free = 143157 * MIB - 60 * GIB
    wait_for(lambda: scrapes.value("kvscope_gpu_memory_free_bytes") == free)
    assert scrapes.components()["unattributed"] == 18 * MIB


def test_headroom_is_what_the_next_allocation_can_get(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    name = "kvscope_gpu_memory_headroom_bytes"
    assert scrapes.value(name) is None, "unknown without torch's figures"
    scrapes.tell(torch_sample())
    free = scrapes.value("kvscope_gpu_memory_free_bytes")
    assert free is not None
    assert scrapes.value(name) == free + 2 * GIB - 4096 - GIB // 2
    hardware.change({"gpu.0.memory.used": 120 * GIB})
    wait_for(lambda: (scrapes.value(name) or 0) < 25 * GIB)
    assert scrapes.value("kvscope_gpu_activation_peak_bytes") == 2 * GIB
    scrapes.tell(torch_sample(activation_peak_bytes=GIB))
    assert scrapes.value("kvscope_gpu_activation_peak_bytes") == 2 * GIB, "the largest seen"


def test_headroom_is_unknown_where_the_allocator_does_not_say() -> None:
    memory = Memory(total=10, free=5, used=4, reserved=1)
    assert headroom(memory, torch_sample(inactive_split_bytes=None)) is None
    assert headroom(memory, torch_sample(active_bytes=None)) is None


def test_a_driver_that_does_not_split_has_no_ledger() -> None:
    assert components(Memory(total=10, free=5), None, torch_sample()) is None


@pytest.mark.parametrize(
    ("name", "labels", "field"),
    [
        ("kvscope_gpu_torch_allocated_bytes", {}, "allocated_bytes"),
        ("kvscope_gpu_torch_active_bytes", {}, "active_bytes"),
        ("kvscope_gpu_torch_reserved_bytes", {}, "reserved_bytes"),
        ("kvscope_gpu_torch_requested_bytes", {}, "requested_bytes"),
        ("kvscope_gpu_torch_inactive_split_bytes", {}, "inactive_split_bytes"),
        ("kvscope_gpu_torch_allocated_peak_bytes", {}, "allocated_peak_bytes"),
        ("kvscope_gpu_torch_reserved_peak_bytes", {}, "reserved_peak_bytes"),
        ("kvscope_gpu_torch_alloc_retries_total", {}, "alloc_retries"),
        ("kvscope_gpu_torch_ooms_total", {}, "ooms"),
        ("kvscope_gpu_activation_peak_bytes", {}, "activation_peak_bytes"),
    ],
)
def test_torch_figures_follow_the_engine_even_without_nvml(
    name: str, labels: dict[str, str], field: str
) -> None:
    scrapes = Scrapes(None)
    scrapes.tell(torch_sample(**{field: 77 * GIB}))
    assert scrapes.value(name, uuid=UUID.format(0), **labels) == 77 * GIB
    if field != "activation_peak_bytes":
        scrapes.tell(torch_sample(**{field: None}))
        assert scrapes.value(name, **labels) is None


def test_figures_of_an_engine_that_fell_silent_are_absent(start: Start) -> None:
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample(), age_seconds=11)
    assert not scrapes.series("kvscope_gpu_torch_memory_bytes")
    assert scrapes.components().keys() == FOREIGN


def test_two_gpus_have_a_ledger_each(hardware: Simulated, start: Start) -> None:
    busy = STATES["two_h200"]()
    hardware.become(busy)
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample())
    assert scrapes.components(UUID.format(0)).keys() == TEN
    idle = scrapes.components(UUID.format(1))
    assert idle["server_process"] == 0
    assert sum(idle.values()) == 143771 * MIB
