"""The observer of a vLLM worker: its device memory, every second, from a thread of its own.

vLLM's threads only note figures at start-up; nothing runs in a step. A failure here ends this
observer with one line, and vLLM continues.
"""

import atexit
import functools
import os
import threading
import time
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
from kvscope_events.observers.vllm.served import engine_index, served_name, server_version
from kvscope_events.observers.vllm.sizing import pool_bytes
from kvscope_events.observers.vllm.start import LAST, PHASES, Start
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
        began_ns = time.time_ns()
        result = original(self, *args, **kwargs)
        _observe(self, began_ns)
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


def _observe(wrapper: Any, began_ns: int) -> None:
    """Begin to observe a worker whose device is ready; never raises. began_ns: Unix time when its
    initialisation began."""
    try:
        worker = wrapper.worker
        config = getattr(wrapper, "vllm_config", None) or worker.vllm_config
        endpoint = worker_endpoint(engine_index(config), int(worker.rank))
        before = _observers.get(endpoint)
        if before is not None and before.abandoned:
            before.stop()  # of an engine that this process had before
        observer = WorkerObserver(worker, endpoint, Start(began_ns))
        _observers[endpoint] = observer
        observer.begin(config)
    except EndpointError as error:
        warn(f"this worker is not observed: {error}. {REMEDY}.")
    except Exception as error:
        warn(f"this worker is not observed: {error!r}")


class WorkerObserver:
    """Hooks on one worker, a thread that samples its device, and a publisher."""

    def __init__(self, worker: Any, endpoint: str, start: Start) -> None:
        """Binds the endpoint; raises EndpointError."""
        self._start = start
        self._worker = weakref.ref(worker)
        self._pid = os.getpid()
        self._sampler = Sampler(device_of(worker))
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
        self._hooked: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="kvscope-worker", daemon=True)

    @property
    def abandoned(self) -> bool:
        """Whether the worker is gone."""
        return self._worker() is None

    def begin(self, config: Any) -> None:
        """Put the hooks in place, and begin to publish; leaves nothing behind if that fails."""
        try:
            self._begin(config)
        except BaseException:
            self._unhook()
            self.stop()
            raise

    def _begin(self, config: Any) -> None:
        worker: Any = self._worker()
        self._hello = self._introduction(config, int(worker.rank))
        on_cpu = getattr(device_of(worker), "type", None) == "cpu"
        self._measured = machine_memory() if on_cpu else device_memory(worker)
        self._hook(worker, "load_model", self._loaded)
        self._hook(worker, "determine_available_memory", self._sized)
        self._hook(worker, "initialize_from_config", self._initialized)
        if hasattr(worker, LAST):
            self._hook(worker, LAST, self._warmed_up)
        for event in self._state():
            self._bus.emit(event)
        self._publisher.start()
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the thread, then the publisher. A forked child leaves both alone."""
        if self._pid != os.getpid():
            return
        self._stopping = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(SAMPLE_SECONDS)
        self._publisher.stop()

    def _introduction(self, config: Any, rank: int) -> Hello:
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
        )

    def _hook(self, worker: Any, name: str, note: Callable[..., None]) -> None:
        """Have `note` called after a method of this worker, with the method's arguments; the method
        begins a part of the start."""
        original = getattr(worker, name)
        # Kept without a reference to the worker, which would outlive its engine in a cycle.
        function = getattr(original, "__func__", None)
        call: Callable[..., Any] = original
        if function is not None:
            call = functools.partial(_call, function, self._worker)
        del original

        @functools.wraps(function or call)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            self._guarded(f"before {name}", self._begin_phase, PHASES[name])
            result = call(*args, **kwargs)
            self._guarded(f"after {name}", note, *args, **kwargs)
            return result

        setattr(worker, name, hooked)
        self._hooked[name] = hooked

    def _guarded(self, when: str, note: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call it, unless this observer has ended, or this is a fork; never raises."""
        if self._reason is None and self._pid == os.getpid():
            try:
                note(*args, **kwargs)
            except Exception as error:
                self._fail(f"{when}: {error!r}")

    def _begin_phase(self, phase: StartPhase) -> None:
        self._start.begin(phase)
        self._bus.emit(self._start.event())
        self._news.set()

    def _warmed_up(self, *args: Any, **kwargs: Any) -> None:
        self._start.end()
        self._bus.emit(self._start.event())
        self._news.set()

    def _loaded(self, *args: Any, **kwargs: Any) -> None:
        self._sampler.weights_bytes = weights_bytes(self._worker())

    def _sized(self, *args: Any, **kwargs: Any) -> None:
        sampler = self._sampler
        allocated = sampler.allocated_bytes()
        self._measured |= profiled_memory(self._worker(), sampler.weights_bytes, allocated)
        sampler.pool_follows()

    def _initialized(self, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        sampler = self._sampler
        sampler.kv_pool_bytes = pool_bytes(kv_cache_config)
        terms = sizing_terms(self._measured, sampler.weights_bytes, sampler.kv_pool_bytes)
        self._profiled = StartupProfiled(terms) if terms else None
        tells = VLLM_WORKER_EVENTS if terms else VLLM_WORKER_EVENTS - {"StartupProfiled"}
        self._hello = msgspec.structs.replace(self._hello, ready=True, tells=sorted(tells))
        if LAST not in self._hooked:
            self._start.end()
        for event in self._state():
            self._bus.emit(event)
        self._news.set()

    def _state(self) -> list[EngineEvent]:
        """The Hello, and the events that must follow it."""
        profiled = [] if self._profiled is None else [self._profiled]
        return [self._hello, *profiled, self._start.event()]

    def _run(self) -> None:
        try:
            while not self._stopping and not self.abandoned and self._reason is None:
                self._bus.emit(self._sampler.sample())
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
        self._unhook()
        warn(f"this worker is no longer observed: {reason}; vLLM runs on")
        self._news.set()

    def _unhook(self) -> None:
        worker = self._worker()
        for name, hooked in self._hooked.items():
            if worker is not None and vars(worker).get(name) is hooked:
                delattr(worker, name)


def _call(function: Any, owner: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
    return function(owner(), *args, **kwargs)
