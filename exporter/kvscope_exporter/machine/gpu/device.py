"""Reads one GPU. Every reading is a value in base units, or None if the card does not have it."""

import ctypes
from collections.abc import Iterator
from typing import Any, Literal

import pynvml

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu.calls import (
    NOT_FOUND,
    OLDER_DRIVER,
    REFUSALS,
    Calls,
    Nvml,
    NvmlCallError,
    Place,
)
from kvscope_exporter.machine.gpu.sample import (
    Identity,
    Memory,
    MigMemory,
    ProcessList,
    ProcessUse,
    RemappedRows,
    Sensors,
)

MAX_MIG_DEVICES = 7
_CORRECTED, _UNCORRECTED, _SINCE_DRIVER_LOAD = 0, 1, 0
_GPU_SENSOR = 0
_MEMORY_TEMPERATURE, _RECOVERY_ACTION = 82, 230
_PCIE_SENT, _PCIE_RECEIVED = 197, 198
_PCIE_LANE_RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""Billions of transfers a second, by generation of the link."""
_FIELDS = (_MEMORY_TEMPERATURE, _PCIE_SENT, _PCIE_RECEIVED, _RECOVERY_ACTION)
_INTEGER_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""The member of the union that holds a field's value, by value type."""


class Device:
    """One GPU's handle; its methods raise only DeviceLostError or NvmlDownError."""

    def __init__(self, calls: Calls, handle: Nvml, identity: Identity, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self.handle = handle
        self.identity = identity

    @property
    def key(self) -> int:
        """Identifies the GPU: two handles of one GPU are unequal, but point to the same address."""
        return handle_key(self.handle)

    def memory(self) -> Memory | None:
        """Memory of the GPU; None if the driver refuses, as for the parent of MIG instances.

        Raises NvmlCallError if the call fails in another way: such a GPU is not up.
        """
        return self._memory_of(self.handle, self.identity.index)

    def utilization(self) -> float | None:
        """Share of time with a kernel running."""
        rates = self._ask("DeviceGetUtilizationRates")
        return None if rates is None else rates.gpu / 100

    def processes(self) -> ProcessList | None:
        """Processes on the GPU; None also for a list that contradicts itself (535.43 to 535.86)."""
        before = self._clock.monotonic_ns()
        memory = self.memory()
        listed = self._calls.ask_first(
            ("DeviceGetComputeRunningProcesses_v3", "DeviceGetComputeRunningProcesses_v2"),
            self.handle,
            place=self.identity.index,
        )
        if listed is None or memory is None:
            return None
        processes = tuple(ProcessUse(entry.pid, entry.usedGpuMemory) for entry in listed)
        if sum(process.used_bytes or 0 for process in processes) > memory.total:
            return None
        return ProcessList(processes, memory, before)

    def mig(self) -> tuple[MigMemory, ...]:
        """The GPU instances of a GPU in MIG mode."""
        found: dict[int, MigMemory] = {}
        for place, handle in self._mig_devices():
            instance = self._calls.ask("DeviceGetGpuInstanceId", handle, place=place)
            if instance is None or instance in found:
                continue
            memory = self._memory_of(handle, place)
            if memory is not None:
                uuid = self._calls.ask("DeviceGetUUID", handle, place=place)
                found[instance] = MigMemory(instance, uuid or "", memory)
        return tuple(found.values())

    def mig_uuids(self) -> tuple[str, ...]:
        """UUIDs of all MIG devices: each compute instance has its own."""
        uuids = [self._calls.ask("DeviceGetUUID", h, place=at) for at, h in self._mig_devices()]
        return tuple(uuid for uuid in uuids if uuid is not None)

    def sensors(self) -> Sensors:
        """Slow readings: about a dozen calls, some of them to the firmware."""
        fields = self._fields()
        milliwatts = self._ask("DeviceGetPowerUsage")
        limit_milliwatts = self._ask("DeviceGetEnforcedPowerLimit")
        millijoules = self._ask("DeviceGetTotalEnergyConsumption")
        return Sensors(
            temperature_celsius=self._ask_first(
                ("DeviceGetTemperatureV", "DeviceGetTemperature"), _GPU_SENSOR
            ),
            memory_temperature_celsius=fields.get(_MEMORY_TEMPERATURE),
            power_watts=_thousandth(milliwatts),
            power_limit_watts=_thousandth(limit_milliwatts),
            energy_joules=_thousandth(millijoules),
            sm_clock_hertz=_times(self._ask("DeviceGetClockInfo", pynvml.NVML_CLOCK_SM), 10**6),
            clocks_events=self._ask_first(
                ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
            ),
            ecc_corrected=self._ask("DeviceGetTotalEccErrors", _CORRECTED, _SINCE_DRIVER_LOAD),
            ecc_uncorrected=self._ask("DeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_DRIVER_LOAD),
            remapped_rows=self._remapped_rows(),
            recovery_action=fields.get(_RECOVERY_ACTION),
            pcie_sent_bytes=fields.get(_PCIE_SENT),
            pcie_received_bytes=fields.get(_PCIE_RECEIVED),
            pcie_link_ratio=self._pcie_link_ratio(),
        )

    def _mig_devices(self) -> Iterator[tuple[tuple[int, int], Nvml]]:
        """Places and handles of the MIG devices; empty outside MIG mode."""
        mode = self._ask("DeviceGetMigMode")
        if mode is None or not mode[0]:
            return
        for number in range(MAX_MIG_DEVICES):
            handle = self._ask("DeviceGetMigDeviceHandleByIndex", number, expected=NOT_FOUND)
            if handle is None:
                return
            yield (self.identity.index, number), handle

    def _memory_of(self, handle: Nvml, place: Place) -> Memory | None:
        """Memory by the second version of the call if the driver has it."""
        try:
            v2 = self._calls.call(
                "DeviceGetMemoryInfo_v2", handle, place=place, version=pynvml.nvmlMemory_v2
            )
            return Memory(total=v2.total, free=v2.free, used=v2.used, reserved=v2.reserved)
        except NvmlCallError as error:
            if error.code not in REFUSALS:
                raise
            if error.code not in OLDER_DRIVER:
                return None
        v1 = self._calls.ask("DeviceGetMemoryInfo", handle, place=place)
        return None if v1 is None else Memory(total=v1.total, free=v1.free)

    def _remapped_rows(self) -> RemappedRows | None:
        rows = self._ask("DeviceGetRemappedRows")
        if rows is None:
            return None
        correctable, uncorrectable, pending, failed = rows
        return RemappedRows(
            correctable=correctable,
            uncorrectable=uncorrectable,
            pending=bool(pending),
            failed=bool(failed),
        )

    def _pcie_link_ratio(self) -> float | None:
        now, most = self._pcie_link_rate("Curr"), self._pcie_link_rate("Max")
        return None if now is None or most is None else now / most

    def _pcie_link_rate(self, which: Literal["Curr", "Max"]) -> float | None:
        """Lanes times their rate; also None without lanes, or for an unknown generation."""
        lanes = self._ask(f"DeviceGet{which}PcieLinkWidth")
        generation = self._ask(f"DeviceGet{which}PcieLinkGeneration")
        rate = _PCIE_LANE_RATES.get(generation)
        return lanes * rate if lanes and rate else None

    def _fields(self) -> dict[int, int]:
        """Field values: the call succeeds as a whole, and each field has a status of its own."""
        values = self._ask("DeviceGetFieldValues", _FIELDS)
        return {
            value.fieldId: int(getattr(value.value, _INTEGER_MEMBERS[value.valueType]))
            for value in values or ()
            if value.nvmlReturn == 0 and value.valueType in _INTEGER_MEMBERS
        }

    def _ask(self, name: str, *arguments: Any, expected: int | None = None) -> Any:
        place = self.identity.index
        return self._calls.ask(name, self.handle, *arguments, place=place, expected=expected)

    def _ask_first(self, names: tuple[str, ...], *arguments: Any) -> Any:
        return self._calls.ask_first(names, self.handle, *arguments, place=self.identity.index)


def handle_key(handle: Nvml) -> int:
    """Identifies the GPU behind a handle within one initialisation."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
