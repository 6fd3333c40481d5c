"""Counts XIDs, NVIDIA's critical events, as NVML reports them: a daemon thread that waits."""

import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple

import pynvml

from kvscope_exporter.catalogue.gpu_sets import XIDS
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu.calls import TIMEOUT, Calls, Nvml, NvmlCallError, NvmlDownError
from kvscope_exporter.machine.gpu.device import Device, handle_key
from kvscope_exporter.machine.gpu.sample import Identity

logger = logging.getLogger(__name__)

WAIT_MILLISECONDS = 500
"""Length of one wait, and the longest that a shutdown may take."""
PAUSE_SECONDS = 1.0
"""Pause after a failed wait, since waits fail at once while a GPU is lost."""


class XidKey(NamedTuple):
    """Labels of the series."""

    gpu: str
    uuid: str
    xid: str


class XidCount(NamedTuple):
    """Number of events, and the time of the last."""

    events: int
    last_ns: int
    """On the exporter's monotonic clock."""


class Xids:
    """Counts since the exporter started, or since the device was reset."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[XidKey, XidCount] = {}

    @property
    def counts(self) -> dict[XidKey, XidCount]:
        """A copy of the counts."""
        with self._lock:
            return self._counts.copy()

    def forget(self, uuid: str, until_ns: int) -> list[str]:
        """Forget the device's XIDs whose last event is not after that time; returns them."""
        with self._lock:
            over = [
                key
                for key, count in self._counts.items()
                if key.uuid == uuid and count.last_ns <= until_ns
            ]
            for key in over:
                del self._counts[key]
        return sorted(key.xid for key in over)

    def record(self, identity: Identity, number: int) -> None:
        """XIDs that are not in the closed set count as `other`."""
        xid = str(number) if str(number) in XIDS else "other"
        key = XidKey(str(identity.index), identity.uuid, xid)
        with self._lock:
            before = self._counts.get(key, XidCount(0, 0))
            self._counts[key] = XidCount(before.events + 1, self._clock.monotonic_ns())
        if not before.events:  # a storm is one line
            logger.warning("GPU %s: XID %d", identity.index, number)


class XidWatcher:
    """Waits on one event set. Events from before its start are lost."""

    def __init__(self, calls: Calls, devices: Iterable[Device], xids: Xids) -> None:
        self._calls = calls
        self._xids = xids
        self._stopping = threading.Event()
        self._identities: dict[int, Identity] = {}
        self._thread: threading.Thread | None = None
        events = calls.ask("EventSetCreate")
        if events is None:
            return
        for device in devices:
            try:
                calls.call(
                    "DeviceRegisterEvents",
                    device.handle,
                    pynvml.nvmlEventTypeXidCriticalError,
                    events,
                    place=device.identity.index,
                )
            except NvmlDownError:
                raise
            except NvmlCallError:
                continue
            self._identities[device.key] = device.identity
        if not self._identities:
            calls.ask("EventSetFree", events)
            return
        self._thread = threading.Thread(
            target=self._watch, args=(events,), name="kvscope-gpu-xids", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Wait for the last wait to end; True: NVML may be shut down."""
        self._stopping.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _watch(self, events: Nvml) -> None:
        try:
            while not self._stopping.is_set():
                self._wait(events)
            self._calls.ask("EventSetFree", events)
        except NvmlDownError as error:
            logger.info("XIDs are not watched until NVML is back: %s", error)

    def _wait(self, events: Nvml) -> None:
        try:
            event = self._calls.call("EventSetWait_v2", events, WAIT_MILLISECONDS, expected=TIMEOUT)
        except NvmlDownError:
            raise
        except NvmlCallError as error:
            if error.code != TIMEOUT:
                self._stopping.wait(PAUSE_SECONDS)
            return
        identity = self._identities.get(handle_key(event.device))
        if identity is not None:
            self._xids.record(identity, event.eventData)
