"""Ends a device's XIDs once it has been reset: an error that a reset has fixed is history.

A reset requires every client to let go of the device. So it has happened if the device was opened
again after a release or a loss, or needed a recovery, and does not report that it still needs one.
"""

import logging
from typing import Literal

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu.sample import Identity
from kvscope_exporter.machine.gpu.xids import Xids

Opening = Literal["start", "release", "loss"]
"""The event before an opening: start or failure of NVML, release on request, loss of the device."""

logger = logging.getLogger(__name__)


class Recovery:
    """Recovery actions of all devices, over all sessions of NVML; used by one polling thread."""

    def __init__(self, xids: Xids, clock: Clock) -> None:
        self._xids = xids
        self._clock = clock
        self._opened_ns: dict[int, int] = {}
        self._needed: dict[int, int | None] = {}

    def opened(self, index: int, after: Opening) -> None:
        """The device of that index was opened."""
        if after != "start":
            self._opened_ns[index] = self._clock.monotonic_ns()

    def observed(self, identity: Identity, action: int | None) -> None:
        """action: what the device needs to recover; 0: nothing, None: not reported."""
        opened_ns = self._opened_ns.pop(identity.index, None)
        needed, self._needed[identity.index] = self._needed.get(identity.index), action
        if action or (opened_ns is None and not needed):
            return
        until_ns = self._clock.monotonic_ns() if opened_ns is None else opened_ns
        if over := self._xids.forget(identity.uuid, until_ns):
            logger.info("GPU %d was reset: XID %s is over", identity.index, ", ".join(over))
