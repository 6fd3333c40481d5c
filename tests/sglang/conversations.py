"""Conversations as a load for SGLang's scheduler: shared beginnings, further turns, pauses."""

import heapq
import random
from typing import Any

from tests.sglang.load import make_request

MOST_TOKENS = 1500
"""No turn begins beyond this length."""
PAUSE = 200.0
"""Mean steps between an answer and the next turn."""
_SYSTEMS = 8


class Conversations:
    """Time is counted in steps of the scheduler; it leaps while nothing runs.

    What is asked for does not depend on when the answers come.
    """

    def __init__(self, requests: int, *, every: float, seed: int = 7) -> None:
        """every: mean steps between new conversations."""
        self.finished = self.longest_queue = 0
        self._requests, self._every = requests, every
        self._random = random.Random(seed)
        self._systems = [_tokens(self._random, 100, 400) for _ in range(_SYSTEMS)]
        self._now = 0.0
        self._sent = self._begun = 0
        self._due: list[tuple[float, int, _Conversation]] = []
        self._live: dict[str, _Conversation] = {}
        self._begin()

    @staticmethod
    def next_token(last: Any, length: Any) -> Any:
        """The model's answer after `length` tokens; numbers or tensors."""
        return (last * 31 + length * 17) % 247 + 3

    def receive(self, scheduler: Any) -> list[Any]:
        """Called where the scheduler reads its socket, before a step."""
        self._now += 1
        if self._due and not self._live:
            self._now = max(self._now, self._due[0][0])
        self.longest_queue = max(self.longest_queue, len(scheduler.waiting_queue))
        new = []
        while self._due and self._due[0][0] <= self._now and self._sent < self._requests:
            conversation = heapq.heappop(self._due)[-1]
            if not conversation.turns_sent:
                self._begin()
            self._sent += 1
            rid = f"r{self._sent}"
            self._live[rid] = conversation
            new.append(conversation.turn(rid))
        if self._sent == self._requests and not self._live:
            scheduler.gracefully_exit = scheduler.is_fully_idle()
        return new

    def reply(self, output: Any) -> None:
        """Called where the scheduler writes to its socket."""
        for place, reason in enumerate(getattr(output, "finished_reasons", None) or ()):
            if reason is not None:
                conversation = self._live.pop(output.rids[place])
                conversation.hear()
                self.finished += 1
                if conversation.goes_on:
                    self._wait(conversation, PAUSE)

    def _begin(self) -> None:
        self._begun += 1
        rng = self._random
        system = self._systems[min(int(rng.expovariate(0.5)), _SYSTEMS - 1)]
        self._wait(_Conversation(self._begun, system), self._every)

    def _wait(self, conversation: "_Conversation", mean: float) -> None:
        due = self._now + conversation.random.expovariate(1 / mean)
        heapq.heappush(self._due, (due, conversation.number, conversation))


class _Conversation:
    def __init__(self, number: int, system: list[int]) -> None:
        self.number = number
        self.random = random.Random(number)
        self.turns_sent = 0
        self._turns = self.random.randint(1, 9)
        self._ids = [*system]
        self._num_new = 0

    @property
    def goes_on(self) -> bool:
        return self.turns_sent < self._turns and len(self._ids) < MOST_TOKENS

    def turn(self, rid: str) -> Any:
        self.turns_sent += 1
        self._ids += _tokens(self.random, 20, 150)
        self._num_new = self.random.randint(4, 24)
        return make_request(rid, self._ids, self._num_new, ignore_eos=True)

    def hear(self) -> None:
        """The answer becomes part of the next turn."""
        ids = self._ids
        for _ in range(self._num_new):
            ids.append(Conversations.next_token(ids[-1], len(ids)))


def _tokens(rng: random.Random, least: int, most: int) -> list[int]:
    return [rng.randint(3, 250) for _ in range(rng.randint(least, most))]
