"""The API server of a vLLM: its answers, as clients see them, on a stream of its own.

FastAPI's application is wrapped in each process that has loaded FastAPI; nothing is opened before
one that serves a vLLM starts. Nothing here raises, and each message passes once.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec

from kvscope_events.events import EngineEvent, FrontEndSampled, ObserverStopped
from kvscope_events.limits import label_of
from kvscope_events.observers.endpoints import REMEDY, front_end_endpoint
from kvscope_events.observers.log import say, warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.vllm.answer import Answer
from kvscope_events.observers.vllm.introduction import identity_of
from kvscope_events.observers.vllm.served import local_engines
from kvscope_events.observers.vllm.tenant import Body, TenantPlace
from kvscope_events.observers.vllm.tokenizer import TokenizerQueue
from kvscope_events.producers import VLLM_FRONT_END_EVENTS, in_order
from kvscope_events.tenants import TENANT_FIELD
from kvscope_events.wire.endpoint import EndpointError

MAX_FRONT_ENDS = 64
SAMPLE_SECONDS = 1.0
"""Between two counts of requests under way, and two looks for readers."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Message, Receive, Send], Awaitable[None]]

_current: ContextVar[Answer | None] = ContextVar("kvscope_answer", default=None)
_front_ends: list[FrontEnd] = []
"""At most one in a process."""


def install_front_end() -> None:
    """Wrap the application's class, if this process may serve one; never raises."""
    application: Any = getattr(sys.modules.get("fastapi"), "FastAPI", None)
    original: Any = vars(application).get("__call__") if isinstance(application, type) else None
    if not inspect.iscoroutinefunction(original) or hasattr(original, "kvscope"):
        return
    call: Application = original

    @functools.wraps(original)
    async def wrapper(self: Any, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            _begin(self)
        for front_end in _front_ends:
            if front_end.serves(self, scope):
                await front_end.answer(call, scope, receive, send)
                return
        await call(self, scope, receive, send)

    wrapper.kvscope = True  # type: ignore[attr-defined]
    application.__call__ = wrapper


def _begin(application: Any) -> None:
    """An application starts to serve: begin, if it is a vLLM's."""
    try:
        client = getattr(application.state, "engine_client", None)
        if client is None or _front_ends:
            return
        number, outlet = _outlet()
        try:
            _front_ends.append(FrontEnd(application, client, number, outlet))
        except BaseException:
            outlet.stop()  # its socket would stay, without a thread that serves it
            raise
        say(f"observing API server {number}; events at {outlet.address}")
    except EndpointError as error:
        warn(f"this API server is not observed: {error}. {REMEDY}.")
    except Exception as error:
        warn(f"this API server is not observed: {error!r}")


def _outlet() -> tuple[int, Outlet]:
    for number in range(MAX_FRONT_ENDS - 1):
        try:
            return number, Outlet(front_end_endpoint(number))
        except EndpointError:  # of another API server; the last one is reported
            continue
    return MAX_FRONT_ENDS - 1, Outlet(front_end_endpoint(MAX_FRONT_ENDS - 1))


class FrontEnd:
    """Counts the answers of one application; all on its event loop, but for a thread that looks
    for readers."""

    def __init__(self, application: Any, client: Any, number: int, outlet: Outlet) -> None:
        self._application = application
        self._outlet = outlet
        self._live = True
        self._pid = os.getpid()
        self._by_request: dict[str, Answer] = {}
        self._under_way: set[Answer] = set()
        """Those with tokens. Changed on the event loop, copied by the thread."""
        self._tokenizer = TokenizerQueue()
        config = client.vllm_config
        self._hello = msgspec.structs.replace(
            identity_of(config, outlet.session),
            tells=in_order(VLLM_FRONT_END_EVENTS),
            worker=f"api-{number}",
            local_engines=local_engines(config),
        )
        self._tenant_place = TenantPlace()
        self._stopped: list[EngineEvent] = []
        self._sampled: list[EngineEvent] = []
        """The last sample; none where it is not known which requests the engine has."""
        self._stopping = threading.Event()
        if self._follow(client):
            self._tokenizer.follow(client, self._waits)
            self._sampled = [self._sample()]
        else:
            tells = VLLM_FRONT_END_EVENTS - {"FrontEndSampled"}
            self._hello = msgspec.structs.replace(self._hello, tells=in_order(tells))
        outlet.start(self._state)
        outlet.send(self._state())
        threading.Thread(target=self._serve, name="kvscope-api", daemon=True).start()

    def _state(self) -> list[EngineEvent]:
        return [self._hello, *self._sampled, *self._stopped]

    def serves(self, application: Any, scope: Message) -> bool:
        """Whether this is a request that is counted: one with a body."""
        return (
            self._live
            and application is self._application
            and scope["type"] == "http"
            and scope["method"] == "POST"
            and self._pid == os.getpid()
        )

    async def answer(self, call: Application, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on, and note what is received and sent."""
        answer = Answer(scope["path"])
        body: Body | None = None
        try:
            body = self._tenant_place.asked(answer, scope)
        except Exception as error:
            self._off(error)

        async def read() -> Message:
            message = await receive()
            try:
                answer.received(message)
                if body is not None:
                    body.received(message)
            except Exception as error:
                self._off(error)
            return message

        async def noted(message: Message) -> None:
            await send(message)
            try:
                answer.sent(message)
            except Exception as error:
                self._off(error)

        token = _current.set(answer)
        if answer.generates:
            self._under_way.add(answer)
        try:
            await call(self._application, scope, read, noted)
        finally:
            _current.reset(token)
            self._ended(answer)

    def _ended(self, answer: Answer) -> None:
        self._under_way.discard(answer)
        answer.is_over = True
        for request_id in answer.request_ids:
            self._by_request.pop(request_id, None)
        if self._live:
            try:
                self._outlet.send([answer.event()])
            except Exception as error:
                self._off(error)

    def _follow(self, client: Any) -> bool:
        """Wrap what hands requests to the engine, and takes its outputs; without them, as in other
        versions, two of the times are not known, nor where a request is."""
        add: Any = getattr(client, "_add_request", None)
        processor: Any = getattr(client, "output_processor", None)
        process: Any = getattr(processor, "process_outputs", None)
        if not _begins(add, "request") or not inspect.iscoroutinefunction(add):
            return False
        if not _begins(process, "engine_core_outputs", "engine_core_timestamp"):
            return False

        @functools.wraps(add)
        async def adding(request: Any, *args: Any, **kwargs: Any) -> Any:
            answer = _current.get()
            if answer is not None and answer.tenant and self._live:
                try:
                    _name_tenant(request, answer.tenant)
                except Exception as error:
                    self._off(error)
            result = await add(request, *args, **kwargs)
            # A task in the background hands over its requests after the answer.
            if answer is not None and self._live and not answer.is_over:
                try:
                    answer.handed(request.request_id)
                    self._by_request[request.request_id] = answer
                except Exception as error:
                    self._off(error)
            return result

        @functools.wraps(process)
        def processing(
            engine_core_outputs: Any, engine_core_timestamp: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if self._by_request and self._live:
                try:
                    self._done(engine_core_outputs, engine_core_timestamp)
                except Exception as error:
                    self._off(error)
            return process(engine_core_outputs, engine_core_timestamp, *args, **kwargs)

        client._add_request = adding
        processor.process_outputs = processing
        return True

    def _done(self, outputs: Any, timestamp: float | None) -> None:
        for output in outputs:
            if output.finish_reason is not None:
                answer = self._by_request.pop(output.request_id, None)
                if answer is not None:
                    answer.finished(timestamp)

    def stop(self) -> None:
        """Pass requests only, and remove the socket."""
        self._live = False
        self._stopping.set()
        self._outlet.stop()

    def _waits(self) -> Answer | None:
        """The answer of the calling task, before the engine has its request."""
        answer = _current.get()
        is_before = answer is not None and self._live and answer.place == "before_engine"
        return answer if is_before else None

    def _sample(self) -> FrontEndSampled:
        places = Counter(answer.place for answer in [*self._under_way])
        return FrontEndSampled(
            before_engine=places["before_engine"],
            in_engine=places["in_engine"],
            after_engine=places["after_engine"],
            tokenizer_queue=self._tokenizer.length,
        )

    def _serve(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            try:
                self._look()
            except Exception as error:
                if not self._live:
                    return  # its readers cannot be served either
                self._off(error)

    def _look(self) -> None:
        """Send a sample that has changed, or serve readers."""
        if self._sampled and self._live:
            sampled: list[EngineEvent] = [self._sample()]
            if sampled != self._sampled:
                self._sampled = sampled
                self._outlet.send(sampled.copy())
                return
        self._outlet.serve(lambda: True)

    def _off(self, error: Exception) -> None:
        """A fault of ours: requests only pass from here on. Never raises."""
        if not self._live:
            return
        self._live = False
        self._by_request.clear()
        self._under_way.clear()
        reason = f"{type(error).__name__} in the front end: {error}"[:400]
        warn(f"off: {reason}. vLLM runs on; its API server is no longer observed.")
        self._stopped = [ObserverStopped(label_of(reason))]
        try:
            self._outlet.send(self._stopped.copy())
        except Exception as fault:
            warn(f"the page does not show that the API server is not observed: {fault!r}")


def _name_tenant(request: Any, digest: str) -> None:
    """For the scheduler, which gets these headers and reports them nowhere without a trace."""
    if hasattr(request, "trace_headers"):
        request.trace_headers = {**(request.trace_headers or {}), TENANT_FIELD: digest}


def _begins(method: Any, *parameters: str) -> bool:
    """Whether a bound method has these first parameters."""
    if not inspect.ismethod(method):
        return False
    return tuple(inspect.signature(method).parameters)[: len(parameters)] == parameters
