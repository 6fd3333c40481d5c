"""Limits for one client: calls in progress, and the tokens that they may still take.

The table holds a client while it has a call in progress, so it is no longer than the calls.
"""

from dataclasses import dataclass

from engine.request import Request
from engine.server.errors import BadRequestError, ClientLimitError


@dataclass(slots=True)
class _UnderWay:
    calls: int = 0
    tokens: int = 0


class ClientLimits:
    """Counts calls in progress by client. None: no limit."""

    def __init__(self, max_requests: int | None, max_tokens: int | None) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._clients: dict[str, _UnderWay] = {}

    @property
    def num_clients(self) -> int:
        """Clients with a call in progress."""
        return len(self._clients)

    def enter(self, client: str) -> "ClientShare":
        """A call begins; it ends with the share's `close`. Raises ClientLimitError."""
        under_way = self._clients.get(client) or _UnderWay()
        if self._max_requests is not None and under_way.calls >= self._max_requests:
            raise ClientLimitError(
                f"{under_way.calls} calls of this client are under way, the limit is "
                f"{self._max_requests}"
            )
        self._clients[client] = under_way
        under_way.calls += 1
        return ClientShare(self, client)

    def take(self, client: str, tokens: int) -> None:
        """Reserve tokens that a call may take. Raises ClientLimitError or, if too many,
        BadRequestError."""
        limit, under_way = self._max_tokens, self._clients[client]
        if limit is not None and tokens > limit:
            raise BadRequestError(
                "max_tokens",
                f"max_tokens: the call may take {tokens} tokens, prompt and answers together, but "
                f"a client's limit is {limit}",
                reason="client_limit",
            )
        if limit is not None and under_way.tokens + tokens > limit:
            raise ClientLimitError(
                f"calls of this client may still take {under_way.tokens} tokens, this one "
                f"{tokens}; the limit is {limit}"
            )
        under_way.tokens += tokens

    def leave(self, client: str, tokens: int) -> None:
        """A call has ended."""
        under_way = self._clients[client]
        under_way.calls -= 1
        under_way.tokens -= tokens
        if not under_way.calls:
            del self._clients[client]


class ClientShare:
    """One call's part of its client's limits.

    As a context it is closed only by an error: an answer continues after the function that began
    it, and closes it at its end.
    """

    def __init__(self, limits: ClientLimits, client: str) -> None:
        self.client = client
        self._limits = limits
        self._tokens = 0
        self._open = True

    def __enter__(self) -> "ClientShare":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()

    def take(self, request: Request) -> None:
        """Count what the call may take. Raises like `ClientLimits.take`."""
        tokens = request.prompt_tokens + sum(
            sequence.sampling.max_tokens for sequence in request.sequences
        )
        self._limits.take(self.client, tokens)
        self._tokens += tokens

    def close(self) -> None:
        """The call has ended. Idempotent."""
        if self._open:
            self._open = False
            self._limits.leave(self.client, self._tokens)
