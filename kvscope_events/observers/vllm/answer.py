"""One request to an API server, from its header to the end of its answer."""

from collections.abc import Mapping
from time import monotonic_ns
from typing import Any

from kvscope_events.events import AnswerSent
from kvscope_events.vocabulary import RequestPlace, Route

_GENERATION = (
    *("/completions", "/chat/completions", "/responses", "/messages", "/generate"),
    *("/audio/transcriptions", "/audio/translations", "/chat/completions/batch"),
    *("/cohere/v2/chat", "/invocations"),  # SageMaker's: an embedding's request comes there as well
)


def route_of(path: str) -> Route:
    return "generation" if path.endswith(_GENERATION) else "other"


class Answer:
    """Times are of the monotonic clock; None: not reached."""

    __slots__ = (
        "_began_ns",
        "_ended_ns",
        "_first_ns",
        "_handed_ns",
        "_has_left",
        "_route",
        "_status",
        "_tokenizer_ns",
        "_tokenizer_queue_ns",
        "_unfinished",
        "done_ns",
        "is_over",
        "request_ids",
        "tenant",
    )

    def __init__(self, path: str) -> None:
        self._began_ns = monotonic_ns()
        self._route = route_of(path)
        self._status: int | None = None
        self._first_ns: int | None = None
        self._handed_ns: int | None = None
        self._ended_ns: int | None = None
        self._has_left = False
        self.is_over = False
        """Whether the application has returned."""
        self.done_ns: int | None = None
        """When the engine had its last token, by the engine's clock."""
        self.request_ids: list[str] = []
        """The engine's requests for it: one for each prompt and sample."""
        self.tenant = ""
        """Digest of the client's name; empty: it has none."""
        self._unfinished = 0
        self._tokenizer_queue_ns: int | None = None
        self._tokenizer_ns: int | None = None

    @property
    def generates(self) -> bool:
        return self._route == "generation"

    @property
    def place(self) -> RequestPlace:
        """Its place now."""
        if not self.request_ids:
            return "before_engine"
        return "in_engine" if self._unfinished else "after_engine"

    def tokenized(self, queue_ns: int, spent_ns: int) -> None:
        """A thread of the tokenizer has worked for it; called there."""
        self._tokenizer_queue_ns = queue_ns + (self._tokenizer_queue_ns or 0)
        self._tokenizer_ns = spent_ns + (self._tokenizer_ns or 0)

    def handed(self, request_id: str) -> None:
        """The engine has been given a request."""
        self._handed_ns = monotonic_ns()
        self.request_ids.append(request_id)
        self._unfinished += 1

    def finished(self, timestamp: float | None) -> None:
        """The engine has ended one of its requests. timestamp: of the engine, in seconds."""
        self._unfinished -= 1
        if timestamp is not None:
            self.done_ns = int(timestamp * 1e9)

    def received(self, message: Mapping[str, Any]) -> None:
        """A message of the client was read by the application."""
        if message["type"] == "http.disconnect" and self._ended_ns is None:
            # vLLM answers a client that has left with an empty 200.
            self._has_left = True

    def sent(self, message: Mapping[str, Any]) -> None:
        """A message of the application was sent to the client."""
        kind = message["type"]
        if kind == "http.response.start":
            self._status = int(message["status"])
        elif kind == "http.response.body" and not self._has_left:
            goes_on = message.get("more_body", False)
            if not goes_on:
                self._ended_ns = monotonic_ns()
            elif self._first_ns is None and message.get("body"):
                self._first_ns = monotonic_ns()

    def event(self) -> AnswerSent:
        ended_ns = self._ended_ns
        end_ns = monotonic_ns() if ended_ns is None else ended_ns
        after_ns = None
        if self.done_ns is not None and ended_ns is not None:
            after_ns = ended_ns - self.done_ns
            if not 0 <= after_ns <= end_ns - self._began_ns:  # an engine on another host
                after_ns = None
        return AnswerSent(
            self._route,
            self._status,
            ended_ns is not None,
            end_ns - self._began_ns,
            self._since(self._first_ns),
            self._since(self._handed_ns),
            after_ns,
            self._tokenizer_queue_ns,
            self._tokenizer_ns,
        )

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self._began_ns
