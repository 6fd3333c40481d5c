"""The requests of the scenarios: chats, document questions, agents, a mix; from one seed.

A conversation waits for its reply before its next turn, and the longest idle one goes next: the
others take turns in between, and the prefix cache has to keep it meanwhile.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvscope.load.spec import LoadSpec, Scenario
from kvscope.load.text import TextCost, words
from kvscope.load.tokens import named_tokens

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"
USUAL_CONTEXT = 4096
"""Context assumed if the server does not report one; every model in use has that much."""
MIN_CONTEXT = 128
"""Tokens of context below which a prompt has no room for its parts."""

_NUM_SYSTEM_PROMPTS = 4
_NUM_DOCUMENTS = 8
_CHAT, _AGENT = "chat", "agents"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of a job, as the next turn needs it."""

    text: str
    prompt_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Job:
    """One request to send."""

    path: str
    body: dict[str, object]
    finished: Callable[[Reply | None], None] = lambda reply: None
    """Called once at its end; None: it failed."""


class JobSource(Protocol):
    """An endless supply of jobs."""

    def next_job(self) -> Job: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Lengths of a conversation in tokens: shares of the context, capped at realistic lengths."""

    system_share: float
    system_cap: int
    turn_share: float
    turn_cap: int
    turns: int
    turn_prefix: str
    """Text before a turn's message; tool results come as the user's, as every template accepts."""


_SHAPES = {
    _CHAT: Shape(
        system_share=0.2, system_cap=800, turn_share=0.04, turn_cap=120, turns=8, turn_prefix=""
    ),
    _AGENT: Shape(
        system_share=0.25,
        system_cap=2000,
        turn_share=0.07,
        turn_cap=500,
        turns=16,
        turn_prefix="Tool result: ",
    ),
}


def make_source(spec: LoadSpec, context: int, cost: TextCost) -> JobSource:
    """The source of every scenario except `trace`.

    Raises ValueError if `context` (max_model_len) leaves no room for prompts besides the replies.
    """
    room = context - spec.reply_tokens
    if room < MIN_CONTEXT:
        raise ValueError(
            f"max_model_len {context} leaves {room} tokens for prompts beside max_tokens "
            f"{spec.reply_tokens}; at least {MIN_CONTEXT} are needed"
        )
    match spec.scenario:
        case Scenario.RAG:
            return DocumentQuestions(spec, room)
        case Scenario.AGENTS:
            return Conversations(_AGENT, spec, room, cost)
        case Scenario.MIX:
            return Mix(spec, room, cost)
        case _:
            return Conversations(_CHAT, spec, room, cost)


class DocumentQuestions:
    """A few long documents with many short questions; some are asked far more often than others."""

    def __init__(self, spec: LoadSpec, room: int) -> None:
        self._spec = spec
        self._rng = random.Random(f"{spec.seed}/rag")
        self._question_tokens = max(1, min(60, room // 20))
        length = min(6000, room * 3 // 5)
        self._documents = [
            named_tokens(f"{spec.seed}/document/{number}", length, spec.vocab_size)
            for number in range(_NUM_DOCUMENTS)
        ]

    def next_job(self) -> Job:
        document = _popular(self._rng, self._documents)
        question = self._rng.choices(range(self._spec.vocab_size), k=self._question_tokens)
        body = {
            "prompt": document + question,
            "max_tokens": _reply_length(self._rng, self._spec),
            "user": "rag",
        }
        return Job(path=COMPLETIONS, body=body)


class Conversations:
    """`num_sessions` conversations in turn; one that ends makes room for a new one."""

    def __init__(self, kind: str, spec: LoadSpec, room: int, cost: TextCost) -> None:
        self._kind, self._spec, self._room, self._cost = kind, spec, room, cost
        self._shape = _SHAPES[kind]
        self._idle: deque[_Conversation] = deque()
        self._num_started = 0
        self._num_alive = 0
        rng = random.Random(f"{spec.seed}/{kind}/systems")
        self._systems = [
            self._words(rng, self._shape.system_share, self._shape.system_cap)
            for _ in range(_NUM_SYSTEM_PROMPTS)
        ]

    def next_job(self) -> Job:
        while self._idle and self._num_alive >= self._spec.num_sessions:
            conversation = self._idle.popleft()
            if self._has_next_turn(conversation):
                return self._job(conversation)
            self._num_alive -= 1
        rng = random.Random(f"{self._spec.seed}/{self._kind}/{self._num_started}")
        self._num_started += 1
        self._num_alive += 1
        conversation = _Conversation(rng, _popular(rng, self._systems), self._cost)
        self._add_turn(conversation, prefix="")
        return self._job(conversation)

    def _has_next_turn(self, conversation: "_Conversation") -> bool:
        if conversation.num_turns == self._shape.turns:
            return False
        self._add_turn(conversation, self._shape.turn_prefix)
        return conversation.num_tokens <= self._room

    def _add_turn(self, conversation: "_Conversation", prefix: str) -> None:
        text = self._words(conversation.rng, self._shape.turn_share, self._shape.turn_cap)
        conversation.say("user", prefix + text)
        conversation.num_turns += 1

    def _job(self, conversation: "_Conversation") -> Job:
        body = {
            "messages": list(conversation.messages),
            "max_tokens": _reply_length(conversation.rng, self._spec),
            "user": self._kind,
        }
        return Job(
            path=CHAT_COMPLETIONS,
            body=body,
            finished=lambda reply: self._finished(conversation, reply),
        )

    def _finished(self, conversation: "_Conversation", reply: Reply | None) -> None:
        if reply is None or self._num_alive > self._spec.num_sessions:
            self._num_alive -= 1
            return
        conversation.hear(reply)
        self._idle.append(conversation)

    def _words(self, rng: random.Random, share: float, cap: int) -> str:
        tokens = min(cap, self._room * share)
        return words(rng, int(tokens * self._cost.bytes_per_token))


class _Conversation:
    """Messages so far, and their estimated cost."""

    def __init__(self, rng: random.Random, system: str, cost: TextCost) -> None:
        self.rng = rng
        self.messages: list[dict[str, str]] = []
        self.num_tokens = 0
        self.num_turns = 0
        self._cost = cost
        self.say("system", system)

    def say(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})
        self.num_tokens += self._cost.tokens(text)

    def hear(self, reply: Reply) -> None:
        """The server's own count replaces the estimate of everything before the reply."""
        if reply.prompt_tokens is not None:
            self.num_tokens = reply.prompt_tokens
        # Text that is decoded and encoded again may need more tokens than were generated.
        self.num_tokens += max(0, (reply.output_tokens or 0) - self._cost.tokens(reply.text))
        self.say("assistant", reply.text)


class Mix:
    """Chats, questions and agents at once."""

    def __init__(self, spec: LoadSpec, room: int, cost: TextCost) -> None:
        self._rng = random.Random(f"{spec.seed}/mix")
        self._sources: tuple[JobSource, ...] = (
            Conversations(_CHAT, spec, room, cost),
            Conversations(_AGENT, spec, room, cost),
            DocumentQuestions(spec, room),
        )

    def next_job(self) -> Job:
        return self._rng.choice(self._sources).next_job()


def _popular(rng: random.Random, items: list[_T]) -> _T:
    """Zipf: the second is chosen half as often as the first, the third a third as often."""
    return rng.choices(items, weights=[1 / (rank + 1) for rank in range(len(items))])[0]


def _reply_length(rng: random.Random, spec: LoadSpec) -> int:
    return rng.randint(max(1, spec.reply_tokens // 4), spec.reply_tokens)
