"""GPU: what NVML says of each device, by index and UUID; what the device is stands on the info."""

from exporter.catalogue.gpu_sets import CLOCKS_EVENTS, NVML_CALLS, NVML_CODES, XIDS
from exporter.catalogue.metric import DEVICE, Kind, Labels, Metric

_DIRECTIONS = ("sent", "received")


def _gpu(
    name: str,
    help: str,
    *,
    kind: Kind = "gauge",
    unit: str = "",
    labels: Labels | None = None,
    otel: str = "",
    aliases: tuple[str, ...] = (),
) -> Metric:
    """A row of this group: all names begin alike, and most labels are the device's."""
    return Metric(
        name=f"kvscope_gpu_{name}",
        kind=kind,
        help=help,
        unit=unit,
        group="gpu",
        labels=DEVICE if labels is None else labels,
        otel_name=otel or f"kvscope.gpu.{name.removesuffix('_total')}",
        aliases=tuple(f"DCGM_FI_DEV_{alias}" for alias in aliases),
    )


GPU = (
    Metric(
        name="kvscope_gpu_info",
        kind="info",
        help="What the device is and what drives it.",
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
        "Whether the device answers; 0: lost, or in need of a reset.",
        otel="hw.status",
    ),
    _gpu("nvml_up", "Whether NVML answers; 0: the last sample is missing or old.", labels={}),
    _gpu(
        "sample_timestamp_seconds",
        "Unix time of the last sample; with kvscope_gpu_nvml_up at 0 nothing else of it is shown.",
        unit="seconds",
        labels={},
        otel="kvscope.gpu.sample.timestamp",
    ),
    _gpu(
        "sample_duration_seconds",
        "Time that NVML took for that sample.",
        unit="seconds",
        labels={},
        otel="kvscope.gpu.sample.duration",
    ),
    _gpu(
        "nvml_errors_total",
        "Failed calls by NVML function and return code; what is not supported is no error.",
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
        "Memory in use, without the driver's reserve.",
        unit="bytes",
        otel="hw.gpu.memory.usage",
        aliases=("FB_USED",),
    ),
    _gpu(
        "memory_reserved_bytes",
        "Memory that the driver keeps: firmware, page tables, ECC.",
        unit="bytes",
        aliases=("FB_RESERVED",),
    ),
    _gpu("memory_free_bytes", "Memory that is free.", unit="bytes", aliases=("FB_FREE",)),
    _gpu(
        "memory_used_ratio",
        "Memory in use over what can be: total less reserve. High by design under a KV pool.",
        unit="ratio",
        otel="hw.gpu.memory.utilization",
        aliases=("FB_USED_PERCENT",),
    ),
    _gpu(
        "mig_memory_bytes",
        "Memory of a MIG GPU instance by state; the states sum to the instance's memory.",
        unit="bytes",
        labels={**DEVICE, "gpu_instance_id": None, "state": ("used", "reserved", "free")},
    ),
    _gpu(
        "processes",
        "Processes with a context on the device; absent where the server's are not visible.",
        unit="processes",
        labels={**DEVICE, "owner": ("server", "other")},
    ),
    _gpu(
        "process_memory_bytes",
        "Device memory of processes; absent where one of them does not say.",
        unit="bytes",
        labels={**DEVICE, "owner": ("server", "other")},
    ),
    _gpu(
        "utilization_ratio",
        "Share of time with a kernel running; says nothing of how much of the device it used.",
        unit="ratio",
        otel="hw.gpu.utilization",
        aliases=("GPU_UTIL",),
    ),
    _gpu(
        "memory_activity_ratio",
        "Share of time that memory was read or written; not how full it is.",
        unit="ratio",
        aliases=("MEM_COPY_UTIL",),
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
        "Power draw; from Ampere on the mean of a second.",
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
        "Energy since the driver was loaded.",
        kind="counter",
        unit="joules",
        otel="hw.energy",
        aliases=("TOTAL_ENERGY_CONSUMPTION",),
    ),
    _gpu("sm_clock_hertz", "Clock of the multiprocessors.", unit="hertz", aliases=("SM_CLOCK",)),
    _gpu("memory_clock_hertz", "Clock of the memory.", unit="hertz", aliases=("MEM_CLOCK",)),
    _gpu(
        "clocks_event_active",
        "Whether this is a reason why clocks are low now.",
        labels={**DEVICE, "reason": tuple(CLOCKS_EVENTS)},
        aliases=("CLOCKS_EVENT_REASONS",),
    ),
    _gpu(
        "ecc_errors_total",
        "ECC errors since the driver was loaded.",
        kind="counter",
        unit="errors",
        labels={**DEVICE, "type": ("corrected", "uncorrected")},
        otel="hw.errors",
        aliases=("ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL"),
    ),
    _gpu(
        "remapped_rows_total",
        "Rows of memory replaced by spare ones in the device's life, by the error that led to it.",
        kind="counter",
        unit="rows",
        labels={**DEVICE, "cause": ("correctable", "uncorrectable")},
        aliases=("CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS"),
    ),
    _gpu("row_remap_pending", "Whether a row waits for a reset to be replaced."),
    _gpu(
        "row_remap_failed",
        "Whether a row could not be replaced.",
        aliases=("ROW_REMAP_FAILURE",),
    ),
    _gpu(
        "xid_events_total",
        "XIDs, the driver's critical events, since the exporter began; a series from its first.",
        kind="counter",
        unit="events",
        labels={**DEVICE, "xid": XIDS},
        aliases=("XID_ERRORS",),
    ),
    _gpu(
        "xid_last_timestamp_seconds",
        "Unix time of the last event with this XID.",
        unit="seconds",
        labels={**DEVICE, "xid": XIDS},
    ),
    _gpu(
        "recovery_action",
        "What the device needs: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain of peers, 4 drain "
        "and reset, 5 IMEX recovery, 6 bus reset, 7 system reboot.",
        aliases=("GPU_RECOVERY_ACTION",),
    ),
    _gpu(
        "pcie_bytes_total",
        "Bytes over PCIe; wraps where the device's counter does.",
        kind="counter",
        unit="bytes",
        labels={**DEVICE, "direction": _DIRECTIONS},
        otel="hw.gpu.io",
    ),
    _gpu(
        "nvlink_bytes_total",
        "Bytes over all NVLinks.",
        kind="counter",
        unit="bytes",
        labels={**DEVICE, "direction": _DIRECTIONS},
    ),
)
