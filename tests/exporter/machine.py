"""A machine that stands still: one busy GPU with everything a card can have, and a host."""

from kvscope_exporter.machine.gpu import (
    DeviceSample,
    GpuSample,
    Identity,
    Memory,
    MigMemory,
    ProcessList,
    ProcessUse,
    Reading,
    RemappedRows,
    Sensors,
    XidCount,
    XidKey,
)
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine

NOW_NS = 10**18
"""Monotonic and wall clock of the fixed clock; later than any batch of a test."""
GIB = 2**30
MIB = 2**20
UUID = "GPU-00000000-2222-3333-4444-555555555555"
SERVER_PID = 4242

_MEMORY = Memory(total=80 * GIB, reserved=480 * MIB, used=60 * GIB, free=20 * GIB - 480 * MIB)
_GPU = DeviceSample(
    identity=Identity(index=0, uuid=UUID, name="NVIDIA H100", pci_bus_id="00000000:01:00.0"),
    up=True,
    memory=_MEMORY,
    utilization_ratio=0.97,
    mig=(MigMemory(1, "MIG-1", Memory(total=GIB, reserved=MIB, used=MIB, free=GIB - 2 * MIB)),),
    processes=ProcessList(
        (ProcessUse(SERVER_PID, 50 * GIB), ProcessUse(77, 9 * GIB)), _MEMORY, NOW_NS
    ),
    sensors=Sensors(
        temperature_celsius=52,
        memory_temperature_celsius=61,
        power_watts=627.4,
        power_limit_watts=700.0,
        energy_joules=123456.789,
        sm_clock_hertz=1980e6,
        clocks_events=0x4,
        ecc_corrected=3,
        ecc_uncorrected=1,
        remapped_rows=RemappedRows(correctable=1, uncorrectable=1, pending=True, failed=True),
        recovery_action=1,
        pcie_sent_bytes=987,
        pcie_received_bytes=654,
        pcie_link_ratio=0.5,
    ),
)


class Still:
    """Always the same reading."""

    def read(self) -> Reading:
        sample = GpuSample(
            taken_ns=NOW_NS - 500_000_000,
            duration_seconds=0.002,
            driver_version="590.48.01",
            cuda_version="13.1",
            devices=(_GPU,),
        )
        return Reading(
            sample=sample,
            last=sample,
            errors={("DeviceGetPowerUsage", "timeout"): 2},
            xids={XidKey("0", UUID, "94"): XidCount(2, NOW_NS - 10**9)},
        )


def _host(pid: int) -> HostMemory:
    assert pid == SERVER_PID
    return HostMemory(resident=6 * GIB, limit=64 * GIB, usage=20 * GIB, unreclaimable=8 * GIB)


MACHINE = Machine(gpu=Still(), host=_host)
