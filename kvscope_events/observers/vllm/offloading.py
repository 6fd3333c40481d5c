"""The host tier of a vLLM that offloads: what its manager stores and evicts, what is copied.

Reported for the OffloadingConnector with its own manager, whose methods are wrapped in that one
object. With any other connector, or methods of another form, nothing of a tier is reported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kvscope_events.events import (
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PoolCreated,
    TierCreated,
    TierTransferred,
)
from kvscope_events.observers.vllm.facts import Names
from kvscope_events.observers.vllm.tier import HOST_MANAGER, tier_of
from kvscope_events.vocabulary import TransferDirection

_METHODS: dict[str, tuple[str, ...]] = {
    "prepare_store": ("keys", "req_context"),
    "complete_store": ("keys", "req_context", "success"),
    "reset_cache": (),
}
"""Methods of the manager and their leading parameters, as in 0.32 and 0.33."""
_COUNTERS: tuple[tuple[TransferDirection, str, str], ...] = (
    ("load", "vllm:kv_offload_load_bytes", "vllm:kv_offload_load_time"),
    ("store", "vllm:kv_offload_store_bytes", "vllm:kv_offload_store_time"),
)
"""Statistics of the connector, in bytes and seconds since the last step."""


def offloading_manager(scheduler: Any) -> Any | None:
    """The manager of the host tier; None: no such tier, or one of an unknown form."""
    connector = getattr(scheduler, "connector", None)
    own = getattr(connector, "connector_scheduler", None)
    manager = getattr(own, "manager", None)
    config = getattr(own, "config", None)
    # Chunks of several blocks, or of groups that differ, have names that no block has.
    plain = len(getattr(config, "kv_group_configs", ())) == 1
    plain = plain and getattr(config, "blocks_per_chunk", 0) == 1
    if manager is None or not plain or tier_of(connector) != "host":
        return None
    if type(manager).__name__ != HOST_MANAGER or not hasattr(manager, "_num_chunks"):
        return None
    if not getattr(scheduler, "log_stats", False):
        return None
    for name, parameters in _METHODS.items():
        method = getattr(manager, name, None)
        if not inspect.ismethod(method):
            return None
        if tuple(inspect.signature(method).parameters)[: len(parameters)] != parameters:
            return None
    return manager


class Reporter(Protocol):
    """The observer, as far as a tier reports through it."""

    live: bool
    names: Names
    created: PoolCreated
    block_size: int
    buffer: list[Any]
    buffered_names: int

    def fail(self, error: BaseException, where: str) -> None: ...


class Offloading:
    """Wraps the manager's methods until `detach`."""

    def __init__(self, observer: Reporter, manager: Any) -> None:
        self._observer = observer
        self._manager = manager
        self._created = TierCreated(
            "host",
            int(manager._num_chunks),
            observer.block_size,
            observer.created.bytes_per_block,
        )

    def attach(self) -> TierCreated:
        """Begin to report; nothing has been stored yet."""
        self._wrap("prepare_store", self._evicted)
        self._wrap("complete_store", self._stored)
        self._wrap("reset_cache", self._cleared)
        return self._created

    def detach(self) -> None:
        """Give the manager its own methods back."""
        for name in _METHODS:
            vars(self._manager).pop(name, None)

    def again(self) -> TierCreated:
        """The tier, for a reader that joins now."""
        tier = self._created
        return TierCreated(
            tier.tier, tier.num_blocks, tier.block_size, tier.bytes_per_block, empty=False
        )

    def transferred(self, outputs: Iterable[Any]) -> list[TierTransferred]:
        """Copies that ended, from the statistics that a step's outputs carry."""
        found = []
        for output in outputs:
            payload = getattr(output.scheduler_stats, "kv_connector_stats", None)
            counts = payload.get("data", {}) if payload else {}
            for direction, total, seconds in _COUNTERS:
                copied = sum(counts.get(total, {}).values())
                if copied:
                    duration_ns = round(sum(counts.get(seconds, {}).values()) * 1e9)
                    found.append(TierTransferred("host", direction, int(copied), duration_ns))
        return found

    def _wrap(self, name: str, after: Callable[..., None]) -> None:
        original = getattr(self._manager, name)
        observer = self._observer

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if observer.live:
                try:
                    after(result, *args, **kwargs)
                except Exception as error:
                    observer.fail(error, f"the offloading manager's {name}")
            return result

        setattr(self._manager, name, wrapper)

    def _evicted(self, result: Any, keys: Any, req_context: Any) -> None:
        if result is not None and result.evicted_keys:
            names = self._observer.names.of_blocks(result.evicted_keys)
            self._report(NamesRemoved("host", names), len(names))

    def _stored(self, result: None, keys: Any, req_context: Any, success: bool = True) -> None:
        if success and keys:
            names = self._observer.names.of_blocks(keys)
            self._report(NamesStored("host", names, None, self._observer.block_size), len(names))

    def _cleared(self, result: None) -> None:
        self._report(NamesCleared("host"), 0)

    def _report(self, event: NamesStored | NamesRemoved | NamesCleared, names: int) -> None:
        self._observer.buffer.append(event)
        self._observer.buffered_names += names
