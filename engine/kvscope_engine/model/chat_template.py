"""The model's chat template: renders conversations in child processes, and reports errors."""

import logging
import queue
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kvscope_engine.model.template_process import Answer, TemplateLimitError, TemplateProcess
from kvscope_events.throttle import ThrottledLog

MAX_PROCESSES = 2
"""Children at once: a conversation that takes long does not hold up all others."""

logger = logging.getLogger(__name__)

Message = dict[str, str]
"""`role` and `content`."""


class ChatTemplateError(ValueError):
    """There is no chat template, or it refused the messages: others may help."""


class TemplateFailure(Exception):
    """The template itself is at fault: no other messages would help."""


class BrokenTemplateError(TemplateFailure):
    """The template cannot be compiled."""


class ChatTemplate:
    """Renders from several threads at once, each with a child of its own."""

    def __init__(self, source: str, variables: dict[str, Any]) -> None:
        self._source = source
        self._variables = variables
        self._broken: str | None = None
        self._has_compiled = False
        self._log = ThrottledLog(logger)
        self._children: queue.LifoQueue[TemplateProcess | None] = queue.LifoQueue()
        for _ in range(MAX_PROCESSES):
            self._children.put(None)  # started when it is needed

    def check(self) -> None:
        """Compile it and try it once; errors are logged. Blocks for a fraction of a second."""
        try:
            self.render([{"role": "user", "content": "hello"}])
        except ChatTemplateError:
            return  # it may want a system message
        except TemplateFailure as error:
            logger.warning("%s", error)

    def render(self, messages: Sequence[Message]) -> str:
        """The conversation as a text that the assistant continues. Blocks for 2.5 s at most.

        Raises ChatTemplateError, TemplateFailure or BrokenTemplateError.
        """
        if self._broken is not None:
            raise BrokenTemplateError(self._broken)
        child = self._children.get()
        try:
            child = child or self._start()
            answer = child.render(messages)
        except (TemplateLimitError, OSError) as error:
            child = None
            raise self._failure(f"the model's chat template failed: {error}") from None
        except TemplateFailure:
            child = None
            raise
        finally:
            self._children.put(child)
        return self._text_of(answer)

    def close(self) -> None:
        """End the idle child processes; a later conversation starts another."""
        idle = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._children.get_nowait())
        for child in idle:
            if child is not None:
                child.close()
            self._children.put(None)

    def _start(self) -> TemplateProcess:
        """Raises BrokenTemplateError or, if it has compiled before, TemplateLimitError."""
        try:
            child = TemplateProcess(self._source, self._variables)
            problem = child.compiled.broken
        except TemplateLimitError as error:
            if self._has_compiled:  # the machine is busy: the next conversation may try again
                raise
            problem = str(error)
        if problem is None:
            self._has_compiled = True
            return child
        self._broken = f"the model's chat template is broken, chats cannot be served: {problem}"
        raise BrokenTemplateError(self._broken)

    def _text_of(self, answer: Answer) -> str:
        if answer.refused is not None:
            raise ChatTemplateError(f"the chat template refused the messages: {answer.refused}")
        if answer.text is None:
            raise self._failure(f"the model's chat template failed: {answer.failed}")
        return answer.text

    def _failure(self, message: str) -> TemplateFailure:
        self._log.warning("chat template", message)
        return TemplateFailure(message)
