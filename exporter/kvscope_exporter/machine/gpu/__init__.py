"""NVIDIA GPUs through NVML: one thread polls, any thread reads the last sample."""

from kvscope_exporter.machine.gpu.calls import Place, binding_problem
from kvscope_exporter.machine.gpu.components import components, headroom, owners
from kvscope_exporter.machine.gpu.history import CHANGE_BYTES, GpuHistory, GpuNote
from kvscope_exporter.machine.gpu.poller import Cadence, GpuPoller, GpuSource, Reading, State
from kvscope_exporter.machine.gpu.sample import (
    DeviceSample,
    GpuSample,
    Identity,
    Memory,
    MigMemory,
    ProcessList,
    ProcessUse,
    RemappedRows,
    Sensors,
)
from kvscope_exporter.machine.gpu.xids import XidCount, XidKey

__all__ = [
    "CHANGE_BYTES",
    "Cadence",
    "DeviceSample",
    "GpuHistory",
    "GpuNote",
    "GpuPoller",
    "GpuSample",
    "GpuSource",
    "Identity",
    "Memory",
    "MigMemory",
    "Place",
    "ProcessList",
    "ProcessUse",
    "Reading",
    "RemappedRows",
    "Sensors",
    "State",
    "XidCount",
    "XidKey",
    "binding_problem",
    "components",
    "headroom",
    "owners",
]
