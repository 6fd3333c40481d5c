"""GPU: what NVML reports about each device, by index and UUID; kvscope_gpu_info describes it."""

from kvscope_exporter.catalogue.gpu_sets import CLOCKS_EVENTS, NVML_CALLS, NVML_CODES, XIDS
from kvscope_exporter.catalogue.metric import DEVICE, Kind, Labels, Metric

_DIRECTIONS = ("sent", "received")
_FULL = ("memory_used_bytes", "memory_free_bytes", "processes", "energy_joules_total")


def _gpu(
    name: str,
    help: str,
    *,
    notes: str = "",
    kind: Kind = "gauge",
    unit: str = "",
    labels: Labels | None = None,
    otel: str = "",
    aliases: tuple[str, ...] = (),
) -> Metric:
    """A row of this group: all names begin with the same prefix, and most rows are by device."""
    return Metric(
        name=f"kvscope_gpu_{name}",
        kind=kind,
        help=help,
        notes=notes,
        unit=unit,
        least=None if unit == "celsius" else 0.0,
        group="gpu",
        detail="full" if name in _FULL else "lean",
        labels=DEVICE if labels is None else labels,
        otel_name=otel or f"kvscope.gpu.{name.removesuffix('_total')}",
        aliases=tuple(f"DCGM_FI_DEV_{alias}" for alias in aliases),
    )


GPU = (
    Metric(
        name="kvscope_gpu_info",
        kind="info",
        help="Name and bus address of the device, and the versions of its driver and of CUDA.",
        unit="",
        group="gpu",
        labels={
            **DEVICE,
            "name": None,
            "pci_bus_id": None,
            "driver_version": None,
            "cuda_version": None,
        },
    ),
    _gpu(
        "up",
        "Whether the device answers; 0 when it is lost or needs a reset.",
        otel="hw.status",
    ),
    _gpu(
        "nvml_up",
        "Whether NVML answers; 0 when its last sample is missing or too old.",
        notes="Absent where there is no NVML library.",
        labels={},
    ),
    _gpu(
        "sample_age_seconds",
        "Time since the last sample of NVML. While kvscope_gpu_nvml_up is 0, its values are "
        "absent.",
        unit="seconds",
        labels={},
        otel="kvscope.gpu.sample.age",
    ),
    _gpu(
        "sample_duration_seconds",
        "Time that NVML took for the last sample.",
        unit="seconds",
        labels={},
        otel="kvscope.gpu.sample.duration",
    ),
    _gpu(
        "nvml_errors_total",
        "Failed NVML calls, by function and return code; unsupported calls are not counted.",
        kind="counter",
        unit="errors",
        labels={"call": NVML_CALLS, "code": (*NVML_CODES.values(), "other")},
    ),
    _gpu(
        "memory_total_bytes",
        "Memory of the device.",
        unit="bytes",
        otel="hw.gpu.memory.limit",
        aliases=("FB_TOTAL",),
    ),
    _gpu(
        "memory_used_bytes",
        "Memory in use, without what the driver reserves.",
        unit="bytes",
        otel="hw.gpu.memory.usage",
        aliases=("FB_USED",),
    ),
    _gpu("memory_free_bytes", "Memory that is free.", unit="bytes", aliases=("FB_FREE",)),
    _gpu(
        "memory_used_ratio",
        "Share of usable GPU memory in use; a KV pool makes it high by design.",
        unit="ratio",
        otel="hw.gpu.memory.utilization",
        aliases=("FB_USED_PERCENT",),
    ),
    _gpu(
        "mig_memory_bytes",
        "Memory of a MIG GPU instance, by state; the states sum to the instance's memory.",
        unit="bytes",
        labels={**DEVICE, "gpu_instance_id": None, "state": ("used", "reserved", "free")},
    ),
    _gpu(
        "processes",
        "Processes on the GPU, by owner.",
        notes="Absent where the server's own processes are not visible.",
        unit="processes",
        labels={**DEVICE, "owner": ("server", "other")},
    ),
    _gpu(
        "process_memory_bytes",
        "Device memory of processes, by owner; absent where the driver does not report it for "
        "each.",
        unit="bytes",
        labels={**DEVICE, "owner": ("server", "other")},
    ),
    _gpu(
        "utilization_ratio",
        "Share of the time in which a kernel was running, however little of the device it used.",
        unit="ratio",
        otel="hw.gpu.utilization",
        aliases=("GPU_UTIL",),
    ),
    _gpu(
        "temperature_celsius",
        "Temperature of the GPU.",
        unit="celsius",
        otel="hw.temperature",
        aliases=("GPU_TEMP",),
    ),
    _gpu(
        "memory_temperature_celsius",
        "Temperature of the memory.",
        unit="celsius",
        aliases=("MEMORY_TEMP",),
    ),
    _gpu(
        "power_watts",
        "Power draw; from the Ampere generation on, the mean of one second.",
        unit="watts",
        otel="hw.power",
        aliases=("POWER_USAGE",),
    ),
    _gpu(
        "power_limit_watts",
        "Power limit in force.",
        unit="watts",
        aliases=("ENFORCED_POWER_LIMIT",),
    ),
    _gpu(
        "energy_joules_total",
        "Energy used since the driver was loaded.",
        kind="counter",
        unit="joules",
        otel="hw.energy",
        aliases=("TOTAL_ENERGY_CONSUMPTION",),
    ),
    _gpu(
        "sm_clock_hertz", "Clock rate of the multiprocessors.", unit="hertz", aliases=("SM_CLOCK",)
    ),
    _gpu(
        "clocks_event_active",
        "Whether clocks are lowered now for this reason.",
        labels={**DEVICE, "reason": tuple(CLOCKS_EVENTS)},
        aliases=("CLOCKS_EVENT_REASONS",),
    ),
    _gpu(
        "ecc_errors_total",
        "ECC errors since the driver was loaded, by type.",
        kind="counter",
        unit="errors",
        labels={**DEVICE, "type": ("corrected", "uncorrected")},
        otel="hw.errors",
        aliases=("ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL"),
    ),
    _gpu(
        "remapped_rows_total",
        "Rows of memory replaced by spare ones in the life of the device, by the kind of error.",
        kind="counter",
        unit="rows",
        labels={**DEVICE, "cause": ("correctable", "uncorrectable")},
        aliases=("CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS"),
    ),
    _gpu("row_remap_pending", "Whether a row of memory will be replaced at the next reset."),
    _gpu(
        "row_remap_failed",
        "Whether a row of memory could not be replaced.",
        aliases=("ROW_REMAP_FAILURE",),
    ),
    _gpu(
        "xid_events_total",
        "XID errors of the driver since the exporter started or the device was reset.",
        notes="An XID has a series from its first event on.",
        kind="counter",
        unit="events",
        labels={**DEVICE, "xid": XIDS},
        aliases=("XID_ERRORS",),
    ),
    _gpu(
        "xid_last_age_seconds",
        "Time since the last event with this XID, by the exporter's monotonic clock.",
        unit="seconds",
        labels={**DEVICE, "xid": XIDS},
    ),
    _gpu(
        "recovery_action",
        "What the GPU needs to recover, from 0 (nothing) to 7 (system reboot).",
        notes="1: GPU reset, 2: node reboot, 3: drain of peers, 4: drain and reset, 5: "
        "IMEX recovery, 6: bus reset.",
        aliases=("GPU_RECOVERY_ACTION",),
    ),
    _gpu(
        "pcie_bytes_total",
        "Bytes over PCIe, by direction; the value wraps where the device's own counter does.",
        kind="counter",
        unit="bytes",
        labels={**DEVICE, "direction": _DIRECTIONS},
        otel="hw.gpu.io",
    ),
    _gpu(
        "pcie_link_ratio",
        "PCIe link rate as a share of what the device and its slot allow.",
        notes="An idle device may lower it.",
        unit="ratio",
    ),
)
