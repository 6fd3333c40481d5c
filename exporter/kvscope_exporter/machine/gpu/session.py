"""One initialisation of NVML: the visible devices, their last readings, the XID watcher."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu.calls import (
    NO_DEVICES,
    Calls,
    DeviceLostError,
    NvmlCallError,
    NvmlDownError,
)
from kvscope_exporter.machine.gpu.device import Device
from kvscope_exporter.machine.gpu.recovery import Opening, Recovery
from kvscope_exporter.machine.gpu.sample import DeviceSample, GpuSample, Identity, Sensors
from kvscope_exporter.machine.gpu.visible import Visible, names_mig, visible
from kvscope_exporter.machine.gpu.xids import Xids, XidWatcher

logger = logging.getLogger(__name__)

WATCHER_SECONDS = 2.0
"""Time that a close waits for the watcher; if it takes longer, it hangs in the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The readings of a cycle besides memory and utilization."""

    processes: bool
    sensors: bool


class Session:
    """One initialisation, from `open` to `close`; used by one polling thread."""

    def __init__(
        self,
        calls: Calls,
        xids: Xids,
        identities: dict[int, Identity],
        clock: Clock,
        environment: Mapping[str, str],
        recovery: Recovery,
        after: Opening,
    ) -> None:
        """Initialise NVML. Raises NvmlDownError; NVML is then shut down again.

        identities: identities of GPUs by index, kept over sessions for a GPU that is lost at start.
        environment: decides by CUDA's rules which GPUs are visible; only those are watched. after:
        the event before this session.
        """
        self._calls = calls
        self._xids = xids
        self._unwatched = False
        self._identities = identities
        self._clock = clock
        self._environment = environment
        self._recovery = recovery
        self._last: dict[int, DeviceSample] = {}
        calls.call("InitWithFlags")
        try:
            self._driver_version: str | None = calls.ask("SystemGetDriverVersion")
            self._cuda_version = _cuda_version(calls.ask("SystemGetCudaDriverVersion"))
            count = self._count()
            self._devices: dict[int, Device | None] = {n: self._open(n) for n in range(count)}
            self._visible = self._choose()
            for index, device in self._devices.items():
                if device is not None:
                    recovery.opened(index, after)
            self._watcher = XidWatcher(calls, self._opened, xids)
        except BaseException:
            _shut_down(calls)
            raise

    def poll(self, due: Due) -> GpuSample:
        """One cycle over the visible devices. Raises NvmlDownError, also after a change of GPUs."""
        began_ns = self._clock.monotonic_ns()
        if self._count() != len(self._devices):
            raise self._calls.failure("DeviceGetCount", NO_DEVICES)
        devices = tuple(self._poll(index, due) for index in self._visible.indices)
        if self._unwatched and self._watcher.stop(WATCHER_SECONDS):
            self._watcher = XidWatcher(self._calls, self._opened, self._xids)
            self._unwatched = False
        ended_ns = self._clock.monotonic_ns()
        return GpuSample(
            taken_ns=ended_ns,
            duration_seconds=(ended_ns - began_ns) / 1e9,
            driver_version=self._driver_version,
            cuda_version=self._cuda_version,
            devices=devices,
            remark=self._visible.remark,
        )

    def close(self) -> bool:
        """Shut NVML down; False if the driver holds a call of ours: try again later."""
        if not self._watcher.stop(WATCHER_SECONDS):
            return False
        _shut_down(self._calls)
        return True

    @property
    def _opened(self) -> list[Device]:
        watched = (self._devices[index] for index in self._visible.indices)
        return [device for device in watched if device is not None]

    def _count(self) -> int:
        """Number of GPUs. Zero is a failure, since a container may have lost its devices."""
        count: int = self._calls.call("DeviceGetCount")
        if count == 0:
            raise self._calls.failure("DeviceGetCount", NO_DEVICES)
        return count

    def _open(self, index: int) -> Device | None:
        """The device, or None while it is lost."""
        try:
            handle = self._calls.call("DeviceGetHandleByIndex", index, place=index)
            uuid = self._calls.ask("DeviceGetUUID", handle, place=index)
            pci = self._calls.ask("DeviceGetPciInfo", handle, place=index)
            name = self._calls.ask("DeviceGetName", handle, place=index)
        except NvmlDownError:
            raise
        except NvmlCallError:
            return None
        identity = Identity(
            index=index,
            uuid=uuid or "",
            name=name,
            pci_bus_id=None if pci is None else _text(pci.busId),
        )
        self._identities[index] = identity
        return Device(self._calls, handle, identity, self._clock)

    def _choose(self) -> Visible:
        """Pick among all devices of the host; hidden ones are opened as well, to identify them."""
        opened = [d for d in self._devices.values() if d and names_mig(self._environment)]
        mig = {uuid: device.identity.index for device in opened for uuid in device.mig_uuids()}
        return visible(self._environment, [self._identity(n) for n in self._devices], mig)

    def _identity(self, index: int) -> Identity:
        return self._identities.get(index, Identity(index=index, uuid=""))

    def _poll(self, index: int, due: Due) -> DeviceSample:
        device = self._devices[index]
        if device is None:
            named = bool(self._identity(index).uuid)
            device = self._devices[index] = self._open(index)
            self._unwatched |= device is not None  # it is back: register its events again
            if device is not None:
                self._recovery.opened(index, "loss")
                if not named:
                    self._visible = self._choose()
        try:
            if device is None:
                return self._down(index)
            sample = self._read(device, due)
        except NvmlDownError:
            raise
        except NvmlCallError as error:
            if isinstance(error, DeviceLostError):
                self._devices[index] = None  # its handle is invalid when it comes back
            if self._last.get(index) is None or self._last[index].up:
                logger.warning("GPU %d does not answer: %s", index, error)
            return self._down(index)
        self._last[index] = sample
        self._recovery.observed(sample.identity, sample.sensors.recovery_action)
        return sample

    def _read(self, device: Device, due: Due) -> DeviceSample:
        last = self._last.get(device.identity.index)
        if last is not None and not last.up:
            last = None  # it was lost: earlier readings are invalid
        memory = device.memory()
        return DeviceSample(
            identity=device.identity,
            up=True,
            memory=memory,
            utilization_ratio=device.utilization(),
            mig=device.mig() if due.sensors or last is None or last.mig else (),
            processes=device.processes() if due.processes or last is None else last.processes,
            sensors=device.sensors() if due.sensors or last is None else last.sensors,
        )

    def _down(self, index: int) -> DeviceSample:
        sample = DeviceSample(identity=self._identity(index), up=False, sensors=Sensors())
        self._last[index] = sample
        return sample


def _shut_down(calls: Calls) -> None:
    try:
        calls.ask("Shutdown")
    except NvmlCallError as error:  # it was gone already
        logger.debug("shutdown: %s", error)


def _cuda_version(number: int | None) -> str | None:
    """13010 → 13.1"""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
