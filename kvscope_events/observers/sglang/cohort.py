"""Figures that stay the same from one decode step to the next, computed once while they do.

Two lists with the same requests are compared by identity, so that a step in which nothing came or
went touches no request: each would be fetched from memory for it.
"""

from collections.abc import Container, Mapping
from typing import Any

from kvscope_events.observers.sglang.requests import Sequence


class Cohort:
    """The requests that decode together. `forget` must follow each change of those that run."""

    def __init__(self, page: int) -> None:
        """page: tokens of a page."""
        self._page = page
        self.forget()

    def forget(self) -> None:
        """A request came, went, or got the last token that it owed of its prompt."""
        self._growing: list[Any] | None = None
        self._beginning: list[int] = []
        self._steps = 0
        self._emitting: list[Any] | None = None
        self._emitted: list[int] = []

    def pages_begun(self, requests: list[Any]) -> int:
        """Pages that the token of this decode step begins; called once for each step.

        The step has added one token to each of these requests' lengths.
        """
        page = self._page
        if page == 1:
            return len(requests)
        if requests != self._growing:
            self._growing, self._steps = requests.copy(), 0
            self._beginning = [0] * page  # requests by the number of steps until they begin one
            for request in requests:
                self._beginning[(1 - request.kv.kv_allocated_len) % page] += 1
        pages = self._beginning[self._steps % page]
        self._steps += 1
        return pages

    def emitted(
        self, requests: list[Any], running: Mapping[str, Sequence], prefills: Container[str]
    ) -> list[int]:
        """Numbers of the sequences that got a token, in the order of the batch; not to be changed.

        running: all, by SGLang's id; prefills: those of them that have no token yet.
        """
        if requests != self._emitting:
            self._emitting = requests.copy()
            self._emitted = [
                sequence.number
                for request in requests
                if (sequence := running.get(request.rid)) is not None
                and sequence.reported
                and request.rid not in prefills
            ]
        return self._emitted
