"""Requests that wait for admission, by priority, then arrival; O(log n)."""

import heapq

from engine.request import Request, RequestState

Rank = tuple[int, int]


def rank(request: Request) -> Rank:
    """Order of service: lower priority number first, then arrival. Unique per request."""
    return (request.priority, request.request_id)


class WaitingQueue:
    """A preempted request keeps its rank, so it comes back before everything that arrived later."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, Request]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, request: Request) -> None:
        heapq.heappush(self._heap, (rank(request), request))
        self._size += 1

    def peek(self) -> Request | None:
        """The next request; those that stopped waiting meanwhile are dropped here."""
        while self._heap:
            request = self._heap[0][1]
            if request.state is RequestState.WAITING:
                return request
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Request:
        """Take the request that `peek` showed."""
        self._size -= 1
        return heapq.heappop(self._heap)[1]

    def forget(self, request: Request) -> None:
        """Take out a request whose state is no longer WAITING; amortised O(log n)."""
        assert request.state is not RequestState.WAITING, "set the new state first"
        self._size -= 1
        if len(self._heap) > 2 * self._size + 64:  # clients that come and go must not pile up here
            self._heap = [entry for entry in self._heap if entry[1].state is RequestState.WAITING]
            heapq.heapify(self._heap)
