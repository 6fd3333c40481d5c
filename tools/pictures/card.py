"""A simulated 24 GiB card under an engine that runs on the CPU: sizes of an 8B model in bfloat16.

What the engine computes is real, and so is all that is measured of its pool, queue and requests.
Simulated is the memory: what torch would hold and the driver would say, from the tokens of each
step. The driver is the double of tests/fakes/nvml, so the reading path is the real one.
"""

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_events.events import DeviceMemorySampled
from tests.fakes.nvml import GIB, MIB, Simulated, machine
from tests.fakes.nvml.states import UUID, l40s

TOTAL = 23_034 * MIB
DRIVER_RESERVED = 489 * MIB
WEIGHTS = 15 * GIB
BYTES_PER_BLOCK = 2 * MIB
NON_TORCH = 512 * MIB
ACTIVATIONS_PER_STEP = 160 * MIB
ACTIVATIONS_PER_TOKEN = 3 * MIB
WRITE_SECONDS = 0.25
NOTEBOOK_PID = 77


@dataclass
class Card:
    """Torch's allocator on it, and the file that the driver's double reads.

    `orders` names a JSON file of the card's faults: `foreign_bytes` another process asks for,
    `workspace_bytes` a library in the engine's own process does, `xids`, and `gpu`, readings of the
    double. A request gets what is free; for the workspace torch returns what it caches.
    """

    state: Path
    orders: Path
    kv_pool: int = 0
    cached: int = 0
    peak: int = 0
    retries: int = 0
    ooms: int = 0
    foreign: int = 0
    workspace: int = 0
    _tokens: int = 0
    _xids: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold_pool(self, num_blocks: int) -> None:
        self.kv_pool = num_blocks * BYTES_PER_BLOCK

    def before_step(self, num_tokens: int) -> None:
        """Take the activations of a step. Raises DeviceOutOfMemoryError as torch would."""
        wanted = ACTIVATIONS_PER_STEP + num_tokens * ACTIVATIONS_PER_TOKEN
        with self._lock:
            self._tokens += num_tokens
            if wanted > self.cached + self.free:
                self.retries += 1
                self.ooms += 1
                raise DeviceOutOfMemoryError(wanted)
            if wanted > self.cached and wanted - self.cached > self.free // 2:
                self.retries += 1  # what is cached lies in pieces: returned, and requested again
            self.cached = max(self.cached, wanted)
            self.peak = max(self.peak, wanted)

    def drop_caches(self) -> None:
        with self._lock:
            self.cached = 0

    @property
    def reserved(self) -> int:
        return WEIGHTS + self.kv_pool + self.cached

    @property
    def held(self) -> int:
        """By the engine's process."""
        return NON_TORCH + self.workspace + self.reserved

    @property
    def free(self) -> int:
        return max(0, TOTAL - DRIVER_RESERVED - self.held - self.foreign)

    def sample(self) -> DeviceMemorySampled:
        with self._lock:
            held = WEIGHTS + self.kv_pool
            return DeviceMemorySampled(
                os.getpid(),
                UUID.format(0),
                WEIGHTS,
                self.kv_pool,
                allocated_bytes=held + min(self.cached, ACTIVATIONS_PER_STEP),
                active_bytes=held + min(self.cached, ACTIVATIONS_PER_STEP),
                reserved_bytes=self.reserved,
                requested_bytes=held + min(self.cached, ACTIVATIONS_PER_STEP) - MIB,
                inactive_split_bytes=self.cached // 16,
                allocated_peak_bytes=held + self.peak,
                reserved_peak_bytes=held + self.peak,
                alloc_retries=self.retries,
                ooms=self.ooms,
                activation_peak_bytes=self.peak,
            )

    def write_forever(self) -> None:
        """The driver's readings; busy while the engine computes."""
        driver = Simulated(self.state)
        driver.become(self._hardware(0.0))
        stop = threading.Event()
        busy = 0.0
        while not stop.wait(WRITE_SECONDS):
            with self._lock:
                tokens, self._tokens = self._tokens, 0
                self._hand_out(self._ordered())
            busy += 0.2 * (min(1.0, tokens / 40) - busy)
            driver.change(self._hardware(busy))
            for xid in self._ordered().get("xids", [])[self._xids :]:
                self._xids += 1
                driver.raise_xid(0, xid)

    def _hand_out(self, orders: dict[str, Any]) -> None:
        self.foreign = min(int(orders.get("foreign_bytes", 0)), self.foreign + self.free)
        workspace = int(orders.get("workspace_bytes", 0))
        if workspace > self.workspace + self.free:
            self.retries += 1
            self.cached = 0
        self.workspace = min(workspace, self.workspace + self.free)

    def _hardware(self, busy: float) -> dict[str, object]:
        foreign = f",{NOTEBOOK_PID}:{self.foreign}" if self.foreign else ""
        readings: dict[str, object] = {
            "name": "NVIDIA L4",
            "memory.total": TOTAL,
            "memory.reserved": DRIVER_RESERVED,
            "memory.used": self.held + self.foreign,
            "processes": f"{os.getpid()}:{self.held}{foreign}",
            "utilization.gpu": round(98 * busy),
            "utilization.memory": round(60 * busy),
            "temperature": round(44 + 24 * busy),
            "power_mw": round(18_000 + 52_000 * busy),
            "power_limit_mw": 72_000,
            "clock.sm": round(900 + 1_140 * busy),
            "clock.memory": 6_251,
            "clocks_event_reasons": "0x4" if busy > 0.95 else "0x0",
        }
        return machine({**l40s(), **readings, **self._ordered().get("gpu", {})})

    def _ordered(self) -> dict[str, Any]:
        try:
            orders: dict[str, Any] = json.loads(self.orders.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return orders
