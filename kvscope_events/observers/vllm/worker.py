"""The observer of a vLLM worker: its device memory, every second, from a thread of its own.

vLLM's threads only note figures at start-up; nothing runs in a step. A failure here ends this
observer with one line, and vLLM continues.
"""

import atexit
import functools
import os
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from kvscope_events.bus import EventBus
from kvscope_events.events import CONTRACT_VERSION, EngineEvent, Hello, ObserverStopped
from kvscope_events.memory import StartupProfiled
from kvscope_events.observers.endpoints import (
    REMEDY,
    switched_off,
    worker_endpoint,
)
from kvscope_events.observers.log import warn
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
    served_name,
    server_version,
)
from kvscope_events.observers.vllm.sizing import pool_bytes
from kvscope_events.observers.vllm.start import LAST, PHASES, Start
from kvscope_events.observers.vllm.worker_hooks import Hooks
from kvscope_events.pid_space import pid_space
from kvscope_events.producers import VLLM_WORKER_EVENTS
from kvscope_events.vocabulary import StartPhase
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.publisher import WirePublisher

SAMPLE_SECONDS = 1.0
REPLAY_BYTES = 256 << 10
"""Some ten minutes of samples; a reader that comes later gets the current state."""
QUEUE_BATCHES = 64
TICK_SECONDS = 0.5
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


class WorkerObserver:
    """Hooks on one worker, a thread that samples its device, and a publisher."""

    def __init__(self, worker: Any, endpoint: str) -> None:
        """Binds the endpoint; raises EndpointError."""
        self._start = Start()
        self._worker = weakref.ref(worker)
        self._pid = os.getpid()
        self._sampler: Sampler | None = None
        """None: the device is not ready."""
        self._measured: Terms = {}
        self._profiled: StartupProfiled | None = None
        self._bus = EventBus()
        self._publisher = WirePublisher(
            self._bus,
            endpoint,
            replay_bytes=REPLAY_BYTES,
            queue_batches=QUEUE_BATCHES,
            tick_seconds=TICK_SECONDS,
        )
        self._bus.provide_snapshot(self._state)
        self._news = threading.Event()
        self._stopping = False
        self._reason: str | None = None
        self._hooks = Hooks(self._worker, self._guarded)
        self._thread = threading.Thread(target=self._run, name="kvscope-worker", daemon=True)

    @property
    def abandoned(self) -> bool:
        """Whether the worker is gone."""
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
            for event in self._state():
                self._bus.emit(event)
            self._publisher.start()
            self._thread.start()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)

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

    def stop(self) -> None:
        """End the thread, then the publisher. A forked child leaves both alone."""
        if self._pid != os.getpid():
            return
        self._stopping = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(SAMPLE_SECONDS)
        self._publisher.stop()

    def _introduction(self, config: Any, rank: int, meet_at: str) -> Hello:
        return Hello(
            contract=CONTRACT_VERSION,
            session=self._publisher.session.hex(),
            server="vllm",
            server_version=server_version(),
            model_name=served_name(config),
            engine=str(engine_index(config)),
            pid=self._pid,
            ready=False,
            tells=sorted(VLLM_WORKER_EVENTS),
            requests_are="sequence",
            pid_space=pid_space(),
            worker=str(rank),
            remote=is_remote(config, meet_at),
        )

    def _guarded(self, when: str, note: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call it, unless this observer has ended, or this is a fork; never raises."""
        if self._reason is None and self._pid == os.getpid():
            try:
                note(*args, **kwargs)
            except Exception as error:
                self._fail(f"{when}: {error!r}")

    def _begin_phase(self, phase: StartPhase) -> None:
        self._start.begin(phase)
        self._report_start()

    def _warmed_up(self, *args: Any, **kwargs: Any) -> None:
        self._started()
        self._report_state()

    def _started(self) -> None:
        self._start.end()
        self._hello = msgspec.structs.replace(self._hello, ready=True)

    def _report_start(self) -> None:
        self._bus.emit(self._start.event())
        self._news.set()

    def _report_state(self) -> None:
        for event in self._state():
            self._bus.emit(event)
        self._news.set()

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
        """The Hello, and the events that must follow it."""
        profiled = [] if self._profiled is None else [self._profiled]
        return [self._hello, *profiled, self._start.event()]

    def _run(self) -> None:
        try:
            while not self._stopping and not self.abandoned and self._reason is None:
                if self._sampler is not None:
                    self._bus.emit(self._sampler.sample())
                if self._start.reads_weights:
                    self._bus.emit(self._start.event())
                self._bus.flush()
                self._news.wait(SAMPLE_SECONDS)
                self._news.clear()
        except Exception as error:
            self._fail(repr(error))
        if self._reason is not None:
            self._bus.emit(ObserverStopped(self._reason))
            self._bus.flush()
        if not self._stopping:  # this thread is never joined
            self._publisher.stop()
            atexit.unregister(self.stop)

    def _fail(self, reason: str) -> None:
        """Switch off: restore the originals, log one line, let the thread say goodbye."""
        self._reason = reason
        self._hooks.remove()
        self._start.loaded()
        warn(f"this worker is no longer observed: {reason}; vLLM runs on")
        self._news.set()
