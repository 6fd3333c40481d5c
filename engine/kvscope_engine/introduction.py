"""The producer of this engine's events: the Hello of its stream, repeated when a fact changes."""

import os
import secrets
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import EngineConfig
from kvscope_engine.step import Step
from kvscope_events.bus import Bus
from kvscope_events.events import CONTRACT_VERSION, EngineEvent, Hello
from kvscope_events.limits import label_of
from kvscope_events.pid_space import pid_space
from kvscope_events.producers import ENGINE_EVENTS, LOOKUP_EVENTS, SWAP_EVENTS, in_order

_HASH_ALGORITHM = "sha256"


class Introduction:
    """Holds the current Hello. Snapshots begin with it from the first moment on."""

    def __init__(self, config: EngineConfig, bus: Bus) -> None:
        """Emits a Hello of an engine that is not ready: its model is yet to be loaded."""
        self._bus = bus
        self._pool: BlockPool | None = None
        self._step: Step | None = None
        self.hello = _hello_of(config)
        bus.emit(self.hello)
        bus.provide_snapshot(self.snapshot)

    def announce(self, **facts: Any) -> None:
        """Emit a Hello with these fields changed."""
        self.hello = msgspec.structs.replace(self.hello, **facts)
        self._bus.emit(self.hello)

    def attach(self, pool: BlockPool, step: Step) -> None:
        """From now on, snapshots show this pool, its swap pool and the largest of these steps."""
        self._pool, self._step = pool, step

    def snapshot(self) -> list[EngineEvent]:
        """The Hello, then the pool's whole state once there is a pool."""
        if self._pool is None or self._step is None:
            return [self.hello]
        state, swap = self._pool.snapshot(self._step.largest_step), self._step.scheduler.swap
        if swap is not None:
            host = swap.host
            state = msgspec.structs.replace(
                state, swap_blocks=host.num_blocks, swap_used=host.num_used
            )
        return [self.hello, state]


def _hello_of(config: EngineConfig) -> Hello:
    caching = config.cache.enable_prefix_caching
    tells = ENGINE_EVENTS if caching else ENGINE_EVENTS - LOOKUP_EVENTS
    if config.swap.space_bytes:
        tells |= SWAP_EVENTS
    return Hello(
        contract=CONTRACT_VERSION,
        session=secrets.token_hex(8),
        server="kvscope",
        server_version=_installed_version(),
        model_name=label_of(config.model.name),
        engine="0",
        pid=os.getpid(),
        ready=False,
        tells=in_order(tells),
        requests_are="call",
        max_model_len=config.max_model_len,
        enable_prefix_caching=caching,
        prefix_caching_hash_algo=_HASH_ALGORITHM,
        pid_space=pid_space(),
        name_space=_name_space(config) if caching else None,
        keeps_blocks=False,  # a request that ends gives back all its blocks
    )


def _name_space(config: EngineConfig) -> str:
    """Names begin with the model's, so that any two engines with one block size agree."""
    facts = ("kvscope", config.model.name, str(config.cache.block_size), _HASH_ALGORITHM)
    return sha256("\n".join(facts).encode()).hexdigest()[:32]


def _installed_version() -> str:
    try:
        return version("kvscope")
    except PackageNotFoundError:
        return "unknown"
