"""The result of one poll of NVML: immutable, in base units; None: could not be read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory in bytes, at one moment.

    A driver without the second version of the call gives only total and free, since its `used`
    contains the reserve.
    """

    total: int
    free: int
    used: int | None = None
    """Used memory without the driver's reserve; total = reserved + used + free."""
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process with a context on the device."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessList:
    """All processes with a context, and the device's memory just before they were listed."""

    processes: tuple[ProcessUse, ...]
    memory: Memory
    taken_ns: int
    """Monotonic."""


@dataclass(frozen=True, slots=True)
class MigMemory:
    """A GPU instance; compute instances share its memory."""

    instance: int
    uuid: str
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class RemappedRows:
    """Counts since the card was made."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """Readings that change slowly or cost a call to the firmware."""

    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    """Energy used since the driver was loaded."""
    sm_clock_hertz: float | None = None
    clocks_events: int | None = None
    """Bits of CLOCKS_EVENTS."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: RemappedRows | None = None
    recovery_action: int | None = None
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    pcie_link_ratio: float | None = None
    """Rate of the link as a share of the maximum of the device and its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Facts that do not change while the driver is loaded."""

    index: int
    uuid: str
    """Empty if the GPU was lost before its UUID was read."""
    name: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One GPU. While it is not up, only its identity is known."""

    identity: Identity
    up: bool
    memory: Memory | None = None
    utilization_ratio: float | None = None
    mig: tuple[MigMemory, ...] = ()
    processes: ProcessList | None = None
    sensors: Sensors = Sensors()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """The watched GPUs after one cycle of the poller."""

    taken_ns: int
    """Monotonic time at the end of the cycle."""
    duration_seconds: float
    driver_version: str | None
    cuda_version: str | None
    devices: tuple[DeviceSample, ...]
    remark: str | None = None
    """The reason why some GPUs of the host are left out, or hidden ones are watched."""
