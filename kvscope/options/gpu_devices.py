"""`--gpu` and `--gpu-devices`: whether to read NVIDIA GPUs, and which GPUs of the host."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from kvscope_engine.option import option

if TYPE_CHECKING:
    from kvscope_exporter.machine.gpu import GpuPoller


class GpuDevices(StrEnum):
    """Values of --gpu-devices."""

    VISIBLE = "visible"
    ALL = "all"

    def environment(self) -> Mapping[str, str]:
        """The environment for the poller; None hides no GPU."""
        return dict(os.environ) if self is GpuDevices.VISIBLE else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """The GPUs that a command reads."""

    gpu_devices: GpuDevices = option(
        GpuDevices.VISIBLE,
        "GPUs to read: those that CUDA_VISIBLE_DEVICES leaves to this process, or all GPUs of the "
        "host.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """The GPUs whose readings are on a page."""

    PANEL: ClassVar[str] = "GPUs"
    gpu: bool = option(
        True,
        "Read NVIDIA GPUs through NVML. POST /api/gpu/release releases them for a while.",
    )
    devices: DeviceOptions = DeviceOptions()


@contextmanager
def polling(options: GpuOptions) -> Iterator["GpuPoller | None"]:
    """A poller that runs inside the block; None if disabled: NVML is then never called."""
    if not options.gpu:
        yield None
        return
    from kvscope_exporter.machine.gpu import GpuPoller

    poller = GpuPoller(environment=options.devices.gpu_devices.environment())
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
