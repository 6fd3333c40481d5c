"""`--gpu` and `--gpu-devices`: whether to read NVIDIA GPUs, and which GPUs of the host."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvscope_exporter.machine.gpu import GpuPoller


class GpuDevices(StrEnum):
    """Values of --gpu-devices."""

    VISIBLE = "visible"
    ALL = "all"

    def environment(self) -> Mapping[str, str]:
        """The environment for the poller; None hides no GPU."""
        return dict(os.environ) if self is GpuDevices.VISIBLE else {}


Gpu = Annotated[
    bool,
    typer.Option(
        help="Read NVIDIA GPUs through NVML. POST /api/gpu/release releases them for a while.",
    ),
]
WatchedDevices = Annotated[
    GpuDevices,
    typer.Option(
        help="GPUs to read: those that CUDA_VISIBLE_DEVICES leaves to this process, or all GPUs "
        "of the host.",
    ),
]
"""The options, for every command that serves a page."""


@contextmanager
def polling(gpu: bool, devices: GpuDevices) -> Iterator["GpuPoller | None"]:
    """A poller that runs inside the block; None if disabled: NVML is then never called."""
    if not gpu:
        yield None
        return
    from kvscope_exporter.machine.gpu import GpuPoller

    poller = GpuPoller(environment=devices.environment())
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
