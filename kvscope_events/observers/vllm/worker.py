"""The observer of a vLLM worker: its device memory, every second, from a thread of its own.

vLLM's threads only note figures at start-up; nothing runs in a step. A failure here ends this
observer with one line, and vLLM continues.
"""

import functools
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from kvscope_events.events import EngineEvent, Hello
from kvscope_events.memory import StartupProfiled
from kvscope_events.observers.endpoints import (
    REMEDY,
    switched_off,
    worker_endpoint,
)
from kvscope_events.observers.log import warn
from kvscope_events.observers.vllm.introduction import identity_of
from kvscope_events.observers.vllm.memory import (
    Sampler,
    Terms,
    device_memory,
    device_of,
    machine_memory,
    profiled_memory,
    sizing_terms,
    weights_bytes,
)
from kvscope_events.observers.vllm.served import (
    engine_index,
    is_remote,
)
from kvscope_events.observers.vllm.sizing import pool_bytes
from kvscope_events.observers.vllm.worker_hooks import LAST, PHASES, Hooks
from kvscope_events.observers.worker_stream import WorkerStream
from kvscope_events.producers import VLLM_WORKER_EVENTS
from kvscope_events.wire.endpoint import EndpointError

LOADER = "vllm.model_executor.model_loader.default_loader"
_WRAPPERS = ("vllm.v1.worker.worker_base", "vllm.worker.worker_base")
_observers: dict[str, "WorkerObserver"] = {}
"""The observers of this process, by endpoint."""


def install_worker_hooks(wrapper: Any = None) -> None:
    """Observe every worker whose device this process, or a fork of it, initialises from now on.

    wrapper: vLLM's class WorkerWrapperBase; None: it is looked up. Never raises.
    """
    if switched_off():
        return
    try:
        _install(wrapper or _wrapper_class())
    except Exception as error:  # whatever importing vLLM's modules raises
        warn(f"memory is not observed: {error}. vLLM runs on.")


def _install(wrapper: Any) -> None:
    original = wrapper.init_device
    if getattr(original, "kvscope", False):
        return

    @functools.wraps(original)
    def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = _observe(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            if observer is not None:
                observer.has_none()
            raise
        if observer is not None:
            observer.has_device()
        return result

    init_device.kvscope = True  # type: ignore[attr-defined]
    wrapper.init_device = init_device


def _wrapper_class() -> Any:
    for name in _WRAPPERS:
        try:
            return import_module(name).WorkerWrapperBase
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"looked for WorkerWrapperBase in {' and '.join(_WRAPPERS)}")


def _observe(wrapper: Any) -> "WorkerObserver | None":
    """Begin to observe a worker that is about to initialise its device, which may take for ever: it
    waits for the other ranks. Never raises."""
    try:
        worker = wrapper.worker
        config = getattr(wrapper, "vllm_config", None) or worker.vllm_config
        endpoint = worker_endpoint(engine_index(config), int(worker.rank))
        before = _observers.get(endpoint)
        if before is not None and before.abandoned:
            before.stop()  # of an engine that this process had before
        observer = WorkerObserver(worker, endpoint)
        _observers[endpoint] = observer
        observer.begin(config)
        return observer
    except EndpointError as error:
        warn(f"this worker is not observed: {error}. {REMEDY}.")
    except Exception as error:
        warn(f"this worker is not observed: {error!r}")
    return None


class WorkerObserver(WorkerStream):
    """Hooks on one worker, and samples of its device."""

    software = "vLLM"

    def __init__(self, worker: Any, endpoint: str) -> None:
        """Binds the endpoint; raises EndpointError."""
        super().__init__(endpoint, LOADER)
        self._worker = weakref.ref(worker)
        self._sampler: Sampler | None = None
        """None: the device is not ready."""
        self._measured: Terms = {}
        self._profiled: StartupProfiled | None = None
        self._hooks = Hooks(self._worker, self._guarded)

    @property
    def abandoned(self) -> bool:
        return self._worker() is None

    def begin(self, config: Any) -> None:
        """Publish who it is; leaves nothing behind if that fails."""
        try:
            worker: Any = self._worker()
            unknown = [name for name in PHASES if name != LAST and not hasattr(worker, name)]
            if unknown:
                raise LookupError(f"looked for its methods {', '.join(unknown)}")
            meet_at = str(getattr(worker, "distributed_init_method", ""))
            self._hello = self._introduction(config, int(worker.rank), meet_at)
            self._open()
        except BaseException:
            self.stop()
            raise

    def has_device(self) -> None:
        """The device is ready: put the hooks in place, and sample it. Never raises."""
        self._guarded("with its device", self._follow)

    def has_none(self) -> None:
        """The device could not be initialised: end, for another attempt. Never raises."""
        self._guarded("without a device", self.stop)

    def _follow(self) -> None:
        worker: Any = self._worker()
        device = device_of(worker)
        on_cpu = getattr(device, "type", None) == "cpu"
        self._measured = machine_memory() if on_cpu else device_memory(worker)
        self._hook("load_model", self._loaded)
        self._hook("determine_available_memory", self._sized)
        self._hook("initialize_from_config", self._initialized)
        if hasattr(worker, LAST):
            self._hook(LAST, self._warmed_up)
        self._sampler = Sampler(device)
        self._news.set()

    def _hook(self, name: str, after: Callable[..., None]) -> None:
        """The method begins a part of the start."""
        self._hooks.add(name, functools.partial(self._begin_phase, PHASES[name]), after)

    def _introduction(self, config: Any, rank: int, meet_at: str) -> Hello:
        return msgspec.structs.replace(
            identity_of(config, self.session),
            ready=False,  # always: the engine core goes on after its workers
            tells=sorted(VLLM_WORKER_EVENTS),
            worker=str(rank),
            remote=is_remote(config, meet_at),
        )

    def _warmed_up(self, *args: Any, **kwargs: Any) -> None:
        self._started()
        self._report_state()

    def _started(self) -> None:
        self._start.end()
        if self._hello.remote:  # the scheduler, which says so for its own workers, is not here
            self._hello = msgspec.structs.replace(self._hello, ready=True)

    def _loaded(self, *args: Any, **kwargs: Any) -> None:
        self._start.loaded()
        self._sampling.weights_bytes = weights_bytes(self._worker())

    def _sized(self, *args: Any, **kwargs: Any) -> None:
        sampler = self._sampling
        allocated = sampler.allocated_bytes()
        self._measured |= profiled_memory(self._worker(), sampler.weights_bytes, allocated)
        sampler.pool_follows()

    def _initialized(self, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        sampler = self._sampling
        sampler.kv_pool_bytes = pool_bytes(kv_cache_config)
        terms = sizing_terms(self._measured, sampler.weights_bytes, sampler.kv_pool_bytes)
        self._profiled = StartupProfiled(terms) if terms else None
        tells = VLLM_WORKER_EVENTS if terms else VLLM_WORKER_EVENTS - {"StartupProfiled"}
        self._hello = msgspec.structs.replace(self._hello, tells=sorted(tells))
        if LAST not in self._hooks:
            self._started()
        self._report_state()

    @property
    def _sampling(self) -> Sampler:
        assert self._sampler is not None, "hooks come with the device"
        return self._sampler

    def _state(self) -> list[EngineEvent]:
        profiled = [] if self._profiled is None else [self._profiled]
        return [self._hello, *profiled, self._start.event()]

    def _each_second(self) -> list[EngineEvent]:
        sample = [] if self._sampler is None else [self._sampler.sample()]
        return [*sample, *([self._start.event()] if self._start.reads_weights else [])]

    def _let_go(self) -> None:
        self._hooks.remove()
