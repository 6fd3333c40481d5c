"""A closed loop of conversations below shared system prompts, the same for the same seed.

Needs nothing but Python, so that it runs in the interpreter of a vLLM, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

VOCABULARY = 256


@dataclass(frozen=True, kw_only=True)
class Load:
    """The clients' requests. Each has one request under way, and its next follows at once."""

    requests: int
    clients: int = 8
    systems: int = 6
    """System prompts, some of them more popular than others."""
    system_tokens: int = 160
    conversations: int = 12
    """Conversations of each client, which continues any of them."""
    turns: int = 6
    """Turns of the longest conversation; a new one begins in its place."""
    user_tokens: int = 48
    """Tokens of the longest message."""
    output_tokens: int = 16
    """Tokens of each answer."""
    seed: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.system_tokens + self.turns * (self.user_tokens + self.output_tokens)


class Server(Protocol):
    """The answering side: one thread, no waiting."""

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None: ...

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        """Compute something; requests that ended, with their output."""
        ...


@dataclass
class _Conversation:
    tokens: list[int]
    turns_left: int


@dataclass
class _Client:
    random: Random
    load: Load
    systems: Sequence[Sequence[int]]
    open: list[_Conversation] = field(default_factory=list)
    current: int = 0

    def ask(self) -> list[int]:
        """The prompt of the next turn of one of the conversations."""
        load, random = self.load, self.random
        while len(self.open) < load.conversations:
            self.open.append(self._begin())
        # Mostly one that was lately gone on with: those come last.
        self.current = int(load.conversations * random.random() ** 0.6)
        self.open.append(self.open.pop(self.current))
        chosen = self.open[-1]
        if not chosen.turns_left:
            chosen = self.open[-1] = self._begin()
        chosen.turns_left -= 1
        chosen.tokens += _tokens(random, random.randrange(load.user_tokens // 4, load.user_tokens))
        return chosen.tokens

    def hear(self, answer: Sequence[int]) -> None:
        self.open[-1].tokens += answer

    def _begin(self) -> _Conversation:
        random = self.random
        system = self.systems[int(len(self.systems) * random.random() ** 2)]
        return _Conversation(list(system), random.randrange(1, self.load.turns + 1))


def drive(server: Server, load: Load) -> None:
    """Serve all requests of the load."""
    random = Random(load.seed)
    systems = [_tokens(random, load.system_tokens) for _ in range(load.systems)]
    clients = [_Client(Random(random.random()), load, systems) for _ in range(load.clients)]
    waits_for: dict[int, _Client] = {}
    sent = 0

    def send(client: _Client) -> None:
        nonlocal sent
        if sent < load.requests:
            waits_for[sent] = client
            server.submit(sent, client.ask(), load.output_tokens)
            sent += 1

    for client in clients:
        send(client)
    while waits_for:
        for request, answer in server.step():
            client = waits_for.pop(request)
            client.hear(answer)
            send(client)


def _tokens(random: Random, count: int) -> list[int]:
    return [random.randrange(VOCABULARY) for _ in range(count)]
