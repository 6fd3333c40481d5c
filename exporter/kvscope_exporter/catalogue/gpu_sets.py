"""The closed sets of NVML: calls, return codes, reasons for low clocks, XIDs."""

NVML_CALLS = (
    "InitWithFlags",
    "SystemGetDriverVersion",
    "SystemGetCudaDriverVersion",
    "DeviceGetCount",
    "DeviceGetHandleByIndex",
    "DeviceGetUUID",
    "DeviceGetName",
    "DeviceGetPciInfo",
    "DeviceGetMemoryInfo_v2",
    "DeviceGetMemoryInfo",
    "DeviceGetUtilizationRates",
    "DeviceGetComputeRunningProcesses_v3",
    "DeviceGetComputeRunningProcesses_v2",
    "DeviceGetTemperatureV",
    "DeviceGetTemperature",
    "DeviceGetPowerUsage",
    "DeviceGetEnforcedPowerLimit",
    "DeviceGetTotalEnergyConsumption",
    "DeviceGetClockInfo",
    "DeviceGetCurrentClocksEventReasons",
    "DeviceGetCurrentClocksThrottleReasons",
    "DeviceGetTotalEccErrors",
    "DeviceGetRemappedRows",
    "DeviceGetFieldValues",
    "DeviceGetCurrPcieLinkWidth",
    "DeviceGetCurrPcieLinkGeneration",
    "DeviceGetMaxPcieLinkWidth",
    "DeviceGetMaxPcieLinkGeneration",
    "DeviceGetMigMode",
    "DeviceGetMigDeviceHandleByIndex",
    "DeviceGetGpuInstanceId",
    "DeviceRegisterEvents",
    "EventSetCreate",
    "EventSetWait_v2",
    "EventSetFree",
    "Shutdown",
)
"""Every NVML function that is called, without the prefix `nvml`."""

NVML_CODES = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    7: "insufficient_size",
    9: "driver_not_loaded",
    10: "timeout",
    12: "library_not_found",
    13: "function_not_found",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "lib_rm_version_mismatch",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    999: "unknown",
}
"""Return codes by number; any other one is `other`."""

CLOCKS_EVENTS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
"""Reasons that slow a busy device down, with their bits in nvmlDeviceGetCurrentClocksEventReasons.

Idle, application clocks, sync boost and display are left out: they are states or settings.
"""

XIDS = (
    *("13", "31", "43", "45", "46", "48", "62", "63", "64", "74", "79", "92", "94", "95"),
    *("109", "110", "119", "120", "136", "140", "143", "144", "145", "146", "147", "148"),
    *("149", "150", "154", "158"),
    "other",
)
"""XIDs that operators act on; any other counts as `other`."""
