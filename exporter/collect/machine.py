"""Families of the machine: GPUs, device memory, host."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.clock import Clock
from exporter.collect.device_memory import (
    collect_host,
    collect_ledger_of_devices,
    collect_torch,
)
from exporter.collect.families import Families
from exporter.collect.gpu import collect_gpus, collect_nvml
from exporter.fold import DeviceMemory
from exporter.gpu import DeviceSample
from exporter.machine import Machine

Part = tuple[str, Iterator[Family]]


def machine_parts(
    families: Families, machine: Machine, fold: DeviceMemory, clock: Clock
) -> Iterator[Part]:
    """By the fold that must work for them."""
    now_ns = clock.monotonic_ns()
    devices: tuple[DeviceSample, ...] = ()
    if machine.gpu is not None:
        reading = machine.gpu.read()
        yield "", collect_nvml(families, reading)
        if reading.sample is not None:
            devices = reading.sample.devices
            yield "", collect_gpus(families, reading.sample)
            yield (
                fold.name,
                collect_ledger_of_devices(
                    families, reading.sample, fold, machine.server_pid, now_ns
                ),
            )
    yield fold.name, collect_torch(families, fold, devices, now_ns)
    host = machine.host(machine.server_pid)
    yield fold.name, collect_host(families, host, fold.fresh(now_ns))
