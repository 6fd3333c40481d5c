"""The one owner of NVML: a daemon thread that polls, and publishes samples by one assignment.

No other thread calls NVML, so a driver that hangs blocks only this one: readers see the last sample
age.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu.calls import (
    DRIVER_REPLACED,
    LIBRARY_NOT_FOUND,
    Calls,
    NvmlCallError,
    Place,
    binding_problem,
    code_name,
)
from kvscope_exporter.machine.gpu.history import GpuHistory
from kvscope_exporter.machine.gpu.recovery import Opening, Recovery
from kvscope_exporter.machine.gpu.sample import GpuSample, Identity
from kvscope_exporter.machine.gpu.session import Due, Session
from kvscope_exporter.machine.gpu.xids import XidCount, XidKey, Xids

logger = logging.getLogger(__name__)

State = Literal["starting", "polling", "down", "releasing", "released", "off"]
"""`off`: no library, or the poller was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Seconds between two readings of each kind."""

    memory: float = 1.0
    """Memory and utilization, which take 15 µs per GPU."""
    processes: float = 5.0
    """The process list, which takes milliseconds and holds a lock of the whole driver."""
    sensors: float = 10.0
    """Temperature, power, clocks, ECC and rows, which are calls to the firmware."""
    first_retry: float = 1.0
    """First pause after NVML went down; it doubles up to `last_retry`."""
    last_retry: float = 30.0
    stale_intervals: int = 3
    """A sample older than this many intervals of `memory` is stale."""

    def __post_init__(self) -> None:
        for name in ("memory", "processes", "sensors", "first_retry", "last_retry"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of the GPUs for a scrape."""

    sample: GpuSample | None
    """None without a fresh sample: NVML counts as down."""
    last: GpuSample | None
    """The last sample, however old; only for its age."""
    errors: dict[tuple[str, str], int]
    """Failures by call and code since the exporter started."""
    xids: dict[XidKey, XidCount]
    has_library: bool = True
    """Whether NVML's library was found, or has not been looked for yet."""


class GpuSource(Protocol):
    """The part of the poller that the collector needs."""

    def read(self) -> Reading:
        """The last sample; returns immediately, whatever the driver does."""
        ...


class GpuPoller:
    """Start it once, after any fork; `read` from any thread."""

    def __init__(
        self,
        cadence: Cadence | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """environment: holds CUDA_VISIBLE_DEVICES; None: all GPUs of the host are watched."""
        self._cadence = cadence or Cadence()
        self._clock = clock or Clock()
        self._environment = environment or {}
        self._remark: str | None = None
        self._sample: GpuSample | None = None
        self._last: GpuSample | None = None
        self.history = GpuHistory()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._xids = Xids(self._clock)
        self._recovery = Recovery(self._xids, self._clock)
        self._after: Opening = "start"
        self._has_library: bool | None = None
        self._identities: dict[int, Identity] = {}
        self._calls = Calls(self._count_error)
        self._stopping = threading.Event()
        self._hold = threading.Event()  # set: release NVML
        self._wake = threading.Event()
        self._settled = threading.Condition()  # guards and announces `state`
        self._thread: threading.Thread | None = None
        self.state: State = "starting"
        self.problem: str | None = None
        """The reason why NVML is down."""

    def start(self) -> None:
        """Begin to poll; returns before the first sample."""
        if self._thread is not None:
            raise RuntimeError("the poller has been started before")
        self._thread = threading.Thread(target=self._run, name="kvscope-gpu", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """End the thread; one that hangs in the driver ends with the process."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def read(self) -> Reading:
        """The last sample, if it is fresh. It never calls the driver and never waits."""
        sample = self._sample
        limit_ns = self._cadence.stale_intervals * self._cadence.memory * 1e9
        if sample is not None and self._clock.monotonic_ns() - sample.taken_ns > limit_ns:
            sample = None
        return Reading(
            sample=sample,
            last=self._last,
            errors=dict(self._errors),
            xids=self._xids.counts,
            has_library=self._has_library is not False,
        )

    @property
    def refused(self) -> dict[tuple[Place, str], str]:
        """Return codes of refused readings in this session, by place and call."""
        return {key: code_name(code) for key, code in self._calls.refused.copy().items()}

    def release(self, timeout: float = 2.0) -> State:
        """Shut NVML down and pause, so that a GPU can be reset; the state after at most `timeout`.

        `releasing`: the driver is still in one of our calls; NVML is released as soon as it
        returns.
        """
        with self._settled:
            if self.state not in ("off", "released"):
                self.state = "releasing"
            self._hold.set()
            self._wake.set()
            self._settled.wait_for(lambda: self.state != "releasing", timeout)
            return self.state

    def resume(self) -> State:
        """Poll again after a release."""
        with self._settled:
            self._hold.clear()
            if self.state in ("releasing", "released"):
                self.state = "starting"
            self._wake.set()
            return self.state

    def _run(self) -> None:
        hidden = binding_problem()
        if hidden is not None:
            logger.warning("no GPU metrics: %s", hidden)
            self._settle("off", hidden)
            return
        session: Session | None = None
        retry = self._cadence.first_retry
        next_processes = next_sensors = 0.0
        while not self._stopping.is_set():
            self._wake.clear()
            if self._hold.is_set():
                self._pause(session)
                session = None
                continue
            try:
                if session is None:
                    self._calls = Calls(self._count_error)
                    session = self._begin()
                now = self._clock.monotonic_ns() / 1e9
                due = Due(processes=now >= next_processes, sensors=now >= next_sensors)
                sample = session.poll(due)
            except NvmlCallError as error:
                self._went_down(error)
                if error.code == LIBRARY_NOT_FOUND:
                    break
                self._close(session)
                session = None
                self._wake.wait(retry)
                retry = min(retry * 2, self._cadence.last_retry)
                continue
            self._has_library = True
            self._publish(sample)
            if due.processes:
                next_processes = now + self._cadence.processes
            if due.sensors:
                next_sensors = now + self._cadence.sensors
            retry = self._cadence.first_retry
            self._settle("polling", None)
            spent = self._clock.monotonic_ns() / 1e9 - now
            self._wake.wait(max(0.0, self._cadence.memory - spent))
        self._close(session)
        self._sample = None
        self._settle("off", self.problem)

    def _begin(self) -> Session:
        session = Session(
            self._calls,
            self._xids,
            self._identities,
            self._clock,
            self._environment,
            self._recovery,
            self._after,
        )
        self._after = "start"
        return session

    def _publish(self, sample: GpuSample) -> None:
        if sample.remark is not None and sample.remark != self._remark:
            logger.info("%s", sample.remark)
        self._remark = sample.remark
        self._sample = self._last = sample
        self.history.note(sample)

    def _pause(self, session: Session | None) -> None:
        """Shut NVML down and sleep until resume or stop."""
        self._sample = None
        self._after = "release"
        self._close(session)
        self._settle("released", None)
        self._wake.wait()

    def _close(self, session: Session | None) -> None:
        """Retry until the session is closed: before that, NVML cannot be used safely."""
        while session is not None and not session.close() and not self._stopping.is_set():
            logger.warning("NVML cannot be shut down yet: the driver holds a wait for events")

    def _went_down(self, error: NvmlCallError) -> None:
        self._sample = None
        if self._has_library is None:
            self._has_library = error.code != LIBRARY_NOT_FOUND
        if error.code == LIBRARY_NOT_FOUND:
            logger.info("no NVIDIA driver library on this machine: no GPU metrics")
        elif self.problem != str(error):
            hint = ": restart this process" if error.code == DRIVER_REPLACED else ", will try again"
            logger.warning("NVML is down: %s%s", error, hint)
        self._settle("down", str(error))

    def _settle(self, state: State, problem: str | None) -> None:
        """Announce the state, unless a release is under way and this is not its end."""
        with self._settled:
            if self.problem and problem is None and state == "polling":
                logger.info("NVML is up again")
            self.problem = problem
            if not self._hold.is_set() or state not in ("polling", "down"):
                self.state = state
            self._settled.notify_all()

    def _count_error(self, call: str, code: int) -> None:
        self._errors[call, code_name(code)] += 1
