"""The threads that apply chat templates and tokenize prompts for an API server, and their queue.

vLLM's renderer has an executor for them, of one thread by default: long prompts wait for each other
there, before the engine has heard of them.
"""

import functools
import inspect
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from kvscope_events.observers.vllm.answer import Answer


class TokenizerQueue:
    """The queue of one client of the engine. Calls are submitted on its event loop."""

    def __init__(self) -> None:
        self._waiting: set[object] | None = None

    @property
    def length(self) -> int | None:
        """Calls that wait for a thread now; None: not known, as with other versions."""
        return None if self._waiting is None else len(self._waiting)

    def follow(self, client: Any, waits: Callable[[], Answer | None]) -> None:
        """Wrap the executor's `submit`. waits: the answer for which the calling task tokenizes."""
        executor: Any = getattr(getattr(client, "renderer", None), "_executor", None)
        submit: Any = getattr(executor, "submit", None)
        if not inspect.ismethod(submit):
            return
        waiting = self._waiting = set()

        @functools.wraps(submit)
        def submitting(call: Any, /, *args: Any, **kwargs: Any) -> Any:
            answer = waits()
            if answer is None:
                return submit(call, *args, **kwargs)
            mark, asked_ns = object(), monotonic_ns()

            def calling(*args: Any, **kwargs: Any) -> Any:
                waiting.discard(mark)
                began_ns = monotonic_ns()
                try:
                    return call(*args, **kwargs)
                finally:
                    answer.tokenized(began_ns - asked_ns, monotonic_ns() - began_ns)

            waiting.add(mark)
            try:
                future = submit(calling, *args, **kwargs)
            except BaseException:
                waiting.discard(mark)
                raise
            # A call whose client left is cancelled before a thread takes it.
            future.add_done_callback(lambda _: waiting.discard(mark))
            return future

        executor.submit = submitting
