"""Every family of NVML's: the hardware changes, and the metric follows."""

from collections.abc import Callable

import pytest

from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import GIB, MIB, Simulated, State, h200, machine, mig
from tests.gpu.scrapes import Scrapes, torch_sample
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]
MOVES: tuple[tuple[str, dict[str, str], State, float], ...] = (
    ("kvscope_gpu_memory_total_bytes", {}, {"memory.total": 100 * GIB}, 100 * GIB),
    ("kvscope_gpu_memory_used_bytes", {}, {"memory.used": 40 * GIB}, 40 * GIB),
    ("kvscope_gpu_memory_free_bytes", {}, {"memory.used": 40 * GIB}, 143157 * MIB - 40 * GIB),
    ("kvscope_gpu_memory_used_ratio", {}, {"memory.used": 143157 * MIB}, 1.0),
    ("kvscope_gpu_utilization_ratio", {}, {"utilization.gpu": 12}, 0.12),
    ("kvscope_gpu_temperature_celsius", {}, {"temperature": 88}, 88),
    ("kvscope_gpu_memory_temperature_celsius", {}, {"field.82": 95}, 95),
    ("kvscope_gpu_power_watts", {}, {"power_mw": 71500}, 71.5),
    ("kvscope_gpu_power_limit_watts", {}, {"power_limit_mw": 350000}, 350),
    ("kvscope_gpu_energy_joules_total", {}, {"energy_mj": 2500}, 2.5),
    ("kvscope_gpu_sm_clock_hertz", {}, {"clock.sm": 345}, 345e6),
    ("kvscope_gpu_recovery_action", {}, {"field.230": 2}, 2),
    ("kvscope_gpu_row_remap_pending", {}, {"remapped.pending": 1}, 1),
    ("kvscope_gpu_row_remap_failed", {}, {"remapped.failed": 1}, 1),
    ("kvscope_gpu_remapped_rows_total", {"cause": "correctable"}, {"remapped.correctable": 3}, 3),
    (
        "kvscope_gpu_remapped_rows_total",
        {"cause": "uncorrectable"},
        {"remapped.uncorrectable": 2},
        2,
    ),
    ("kvscope_gpu_ecc_errors_total", {"type": "corrected"}, {"ecc.corrected": 7}, 7),
    ("kvscope_gpu_ecc_errors_total", {"type": "uncorrected"}, {"ecc.uncorrected": 1}, 1),
    ("kvscope_gpu_pcie_bytes_total", {"direction": "sent"}, {"field.197": 11}, 11),
    ("kvscope_gpu_pcie_bytes_total", {"direction": "received"}, {"field.198": 12}, 12),
    ("kvscope_gpu_pcie_link_ratio", {}, {"pcie.lanes": 8}, 0.5),
    ("kvscope_gpu_pcie_link_ratio", {}, {"pcie.generation": 4}, 0.5),
    ("kvscope_gpu_pcie_link_ratio", {}, {"pcie.lanes": 4, "pcie.generation": 1}, 10 / 512),
    ("kvscope_gpu_pcie_link_ratio", {}, {"pcie.lanes": 0}, float("nan")),
    ("kvscope_gpu_pcie_link_ratio", {}, {"pcie.generation.max": 99}, float("nan")),
    *(
        ("kvscope_gpu_clocks_event_active", {"reason": reason}, {"clocks_event_reasons": bit}, 1.0)
        for reason, bit in (
            ("hw_slowdown", 0x8),
            ("sw_thermal", 0x20),
            ("hw_thermal", 0x40),
            ("hw_power_brake", 0x80),
        )
    ),
    ("kvscope_gpu_clocks_event_active", {"reason": "sw_power_cap"}, {"clocks_event_reasons": 0}, 0),
    ("kvscope_gpu_processes", {"owner": "other"}, {"processes": "4242:1,7:2,8:3"}, 2),
    ("kvscope_gpu_processes", {"owner": "server"}, {"processes": "7:2"}, float("nan")),
    ("kvscope_gpu_process_memory_bytes", {"owner": "server"}, {"processes": "4242:5,7:2"}, 5),
    ("kvscope_gpu_process_memory_bytes", {"owner": "other"}, {"processes": "4242:5,7:2,8:3"}, 5),
)


def absent(value: float) -> bool:
    return value != value


@pytest.mark.parametrize(
    ("name", "labels", "changes", "expected"),
    MOVES,
    ids=lambda field: field if isinstance(field, str) else "",
)
def test_a_metric_follows_the_hardware(
    hardware: Simulated,
    start: Start,
    name: str,
    labels: dict[str, str],
    changes: State,
    expected: float,
) -> None:
    scrapes = Scrapes(start())
    wanted = None if absent(expected) else expected
    assert scrapes.value(name, gpu="0", **labels) != wanted
    hardware.change({f"gpu.0.{key}": value for key, value in changes.items()})
    wait_for(lambda: scrapes.value(name, gpu="0", **labels) == wanted)


def test_the_identity_is_on_the_info(start: Start) -> None:
    (labels,) = Scrapes(start()).series("kvscope_gpu_info")
    assert labels == (
        "0",
        "GPU-00000000-2222-3333-4444-555555555555",
        "NVIDIA H200",
        "00000000:01:00.0",
        "590.48.01",
        "13.1",
    )


def test_every_family_of_the_group_is_seen_on_a_busy_card(
    hardware: Simulated, start: Start
) -> None:
    hardware.become(machine(h200(), mig()))
    scrapes = Scrapes(start())
    hardware.raise_xid(0, 79)
    hardware.change({"gpu.1.power_mw": "!999"})
    scrapes.tell(torch_sample())
    names = {row.family for row in CATALOGUE if row.group in ("gpu", "device_memory")}
    wait_for(lambda: scrapes.names("kvscope_gpu") >= names - {"kvscope_engine_oom_events"})


def test_two_gpus_are_two_series_of_one_family(hardware: Simulated, start: Start) -> None:
    hardware.become(machine(h200(), h200("", 0)))
    scrapes = Scrapes(start())
    free = scrapes.series("kvscope_gpu_memory_free_bytes")
    first, second = ({key[0]: value for key, value in free.items()}[gpu] for gpu in ("0", "1"))
    assert second - first == 31157387264


def test_instances_of_mig_are_a_family_of_their_own_and_the_parent_has_no_memory(
    hardware: Simulated, start: Start
) -> None:
    hardware.become(machine(mig()))
    scrapes = Scrapes(start())
    states = scrapes.series("kvscope_gpu_mig_memory_bytes", gpu="0")
    uuid = "GPU-00000000-2222-3333-4444-555555555555"
    assert {key[1:]: value for key, value in states.items()} == {
        (instance, state): number
        for instance, used in (("1", GIB), ("2", 2 * GIB))
        for state, number in (
            ("used", used),
            ("reserved", 55 * MIB),
            ("free", 74088185856 - 55 * MIB - used),
        )
    }
    assert {key[0] for key in states} == {uuid}
    assert scrapes.value("kvscope_gpu_up") == 1
    assert not scrapes.series("kvscope_gpu_memory_total_bytes")
    assert not scrapes.series("kvscope_gpu_utilization_ratio")
    hardware.change({"gpu.0.mig.2.memory.used": 5 * GIB})
    wait_for(
        lambda: (
            scrapes.value("kvscope_gpu_mig_memory_bytes", gpu_instance_id="2", state="used")
            == 5 * GIB
        )
    )


def test_the_sample_says_when_it_was_taken_and_how_long_it_took(
    hardware: Simulated, start: Start
) -> None:
    scrapes = Scrapes(start())
    age = scrapes.value("kvscope_gpu_sample_age_seconds")
    assert age is not None
    assert age >= 0
    hardware.change({"call.nvmlDeviceGetMemoryInfo_v2.delay_ms": 100})
    wait_for(lambda: (scrapes.value("kvscope_gpu_sample_duration_seconds") or 0) > 0.1)


def test_readings_that_a_card_refuses_are_absent_never_zero(
    hardware: Simulated, start: Start
) -> None:
    hardware.become(machine({"memory.total": GIB, "memory.used": 0, "memory.reserved": 0}))
    scrapes = Scrapes(start())
    assert scrapes.value("kvscope_gpu_up") == 1
    assert scrapes.names("kvscope_gpu") == {
        *("kvscope_gpu", "kvscope_gpu_up", "kvscope_gpu_nvml_up"),
        *("kvscope_gpu_sample_age_seconds", "kvscope_gpu_sample_duration_seconds"),
        *("kvscope_gpu_memory_total_bytes", "kvscope_gpu_memory_free_bytes"),
        "kvscope_gpu_memory_used_bytes",
        *("kvscope_gpu_memory_used_ratio", "kvscope_gpu_memory_component_bytes"),
    }


def test_an_engine_on_a_mig_instance_has_its_figures_at_the_parents_index(
    hardware: Simulated, start: Start
) -> None:
    hardware.become(machine(h200(), mig()))
    scrapes = Scrapes(start())
    uuid = "MIG-00000002-0000-0000-0000-000000000001"
    scrapes.tell(torch_sample(device_uuid=uuid))
    assert scrapes.value("kvscope_gpu_torch_ooms_total", gpu="1", uuid=uuid) == 0


def test_a_binding_older_than_a_call_does_with_the_earlier_one(
    hardware: Simulated, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pynvml.nvmlDeviceGetTemperatureV")
    scrapes = Scrapes(start())
    assert scrapes.value("kvscope_gpu_temperature_celsius") == 52
    assert not scrapes.series("kvscope_gpu_nvml_errors_total")


def test_a_gpu_that_enters_mig_mode_shows_its_instances(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    assert not scrapes.series("kvscope_gpu_mig_memory_bytes")
    hardware.become(machine(mig()))
    wait_for(lambda: len(scrapes.series("kvscope_gpu_mig_memory_bytes")) == 6)
    assert not scrapes.series("kvscope_gpu_memory_total_bytes")
