"""Carries step outputs from the engine's thread to the coroutines that wait for sequences."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from kvscope_engine.request import Request, Sequence
from kvscope_engine.step import StepOutput
from kvscope_engine.step_loop import StepLoop

MAX_TAKEN = 64
"""Outputs of one sequence that are processed before the event loop serves others."""


class _Mailbox:
    """Outputs of one sequence; all new ones are read at once, up to a limit."""

    def __init__(self) -> None:
        self.finished = False
        self._outputs: list[StepOutput] = []
        self._arrived = asyncio.Event()

    def put(self, output: StepOutput) -> None:
        self._outputs.append(output)
        self.finished = self.finished or output.finish_reason is not None
        self._arrived.set()

    async def take(self) -> list[StepOutput]:
        """Waits for at least one output."""
        await self._arrived.wait()
        outputs, self._outputs = self._outputs[:MAX_TAKEN], self._outputs[MAX_TAKEN:]
        if self._outputs:
            await asyncio.sleep(0)
        else:
            self._arrived.clear()
        return outputs


class Dispatcher:
    """The engine for coroutines. All methods except `sink` belong to the event loop's thread."""

    def __init__(self) -> None:
        self._mailboxes: dict[int, _Mailbox] = {}
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._engine: StepLoop | None = None

    def attach(self, engine: StepLoop) -> None:
        """Set the engine whose `sink` this dispatcher is."""
        self._engine = engine
        engine.on_failure(self._engine_failed)

    @property
    def engine(self) -> StepLoop:
        assert self._engine is not None, "attach an engine first"
        return self._engine

    def bind(self) -> None:
        """Deliver to the running event loop from now on."""
        self._event_loop = asyncio.get_running_loop()

    def sink(self, outputs: list[StepOutput]) -> None:
        """Called on the engine's thread after each step: one wake-up for all its outputs."""
        self._soon(partial(self._deliver, outputs))

    def submit(self, request: Request) -> None:
        """Start every sequence of a call, to be ended with `close`.

        Raises QueueFullError or EngineUnavailableError; then there is nothing to close.
        """
        self.engine.submit(request)
        for sequence in request.sequences:  # `_deliver` runs on this thread, so not before this
            self._mailboxes[sequence.sequence_id] = _Mailbox()

    async def outputs(self, sequence: Sequence) -> AsyncIterator[list[StepOutput]]:
        """The outputs of a submitted sequence, in order, until it ends."""
        mailbox = self._mailboxes[sequence.sequence_id]
        while True:
            outputs = await mailbox.take()
            yield outputs
            if outputs[-1].finish_reason is not None:
                return

    def stop(self, sequence: Sequence) -> None:
        """End one sequence whose text is complete; the others of its call continue."""
        mailbox = self._mailboxes.get(sequence.sequence_id)
        if mailbox is not None:  # otherwise the whole call is closed already
            mailbox.finished = True
            self.engine.abort_sequence(sequence, "stop")

    def close(self, request: Request) -> None:
        """Forget a call; its running sequences are aborted. Idempotent."""
        mailboxes = [self._mailboxes.pop(s.sequence_id, None) for s in request.sequences]
        if any(mailbox is not None and not mailbox.finished for mailbox in mailboxes):
            self.engine.abort(request.request_id)

    def _soon(self, call: Callable[[], None]) -> None:
        """Schedule a call on the event loop's thread. Called on the engine's."""
        assert self._event_loop is not None, "bind to an event loop before the first request"
        try:
            self._event_loop.call_soon_threadsafe(call)
        except RuntimeError:  # closed: the server has ended before its last requests
            if not self._event_loop.is_closed():
                raise

    def _engine_failed(self) -> None:
        if self._event_loop is not None:  # otherwise nothing is waiting yet
            self._soon(self._fail_all)

    def _fail_all(self) -> None:
        """A step that failed half-way has lost outputs: calls would wait forever."""
        for sequence_id, mailbox in self._mailboxes.items():
            if not mailbox.finished:
                mailbox.put(StepOutput(sequence_id, None, "error"))

    def _deliver(self, outputs: list[StepOutput]) -> None:
        for output in outputs:
            mailbox = self._mailboxes.get(output.sequence_id)
            if mailbox is not None:
                mailbox.put(output)
