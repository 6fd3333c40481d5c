"""Random calls, and the fate of each: it lives, it raises in a step, or its client leaves."""

import random
from dataclasses import dataclass
from typing import Literal

import msgspec

from kvscope_engine.request import Request, SamplingParams
from kvscope_engine.server.protocol import CompletionRequest
from kvscope_engine.server.requests import RequestFactory

MAX_PROMPT_TOKENS = 160
MAX_OUTPUT_TOKENS = 40
MAX_MODEL_LEN = MAX_PROMPT_TOKENS + MAX_OUTPUT_TOKENS
_SHARED = 64
"""Tokens with which every third prompt begins."""
_VOCABULARY = 256

Fate = Literal["lives", "raises", "leaves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a client."""

    prompt: list[int]
    max_tokens: int
    n: int
    temperature: float
    seed: int
    priority: int
    penalised: bool
    """Its logits depend on all that each choice has said."""
    fate: Fate
    at: int
    """Tokens of its first choice after which it raises, or its client leaves."""

    @property
    def tokens(self) -> int:
        """Tokens of one choice."""
        return len(self.prompt) + self.max_tokens

    def request(self, factory: RequestFactory) -> Request:
        """As the server builds it."""
        body = CompletionRequest(
            prompt=msgspec.Raw(),
            n=self.n,
            seed=self.seed,
            temperature=self.temperature,
            priority=self.priority,
        )
        sampling = SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            presence_penalty=0.6 if self.penalised else 0.0,
            frequency_penalty=1.1 if self.penalised else 0.0,
            repetition_penalty=1.2 if self.penalised else 1.0,
            logit_bias=((7, 2.0),) if self.penalised else (),
            min_p=0.01 if self.penalised else 0.0,
            seed=self.seed,
            ignore_eos=True,
        )
        return factory.build(body, [(self.prompt, sampling)])


def random_calls(count: int, seed: int) -> list[Call]:
    """Different for every seed, equal for equal ones."""
    rng = random.Random(seed)
    shared = [rng.randrange(_VOCABULARY) for _ in range(_SHARED)]

    def prompt() -> list[int]:
        own = rng.randint(1, MAX_PROMPT_TOKENS - _SHARED)
        tokens = [rng.randrange(_VOCABULARY) for _ in range(own)]
        return shared + tokens if rng.random() < 1 / 3 else tokens

    return [
        Call(
            prompt=prompt(),
            max_tokens=rng.randint(1, MAX_OUTPUT_TOKENS),
            n=rng.choice((1, 1, 1, 2, 4)),
            temperature=rng.choice((0.0, 0.9)),
            seed=rng.randrange(2**31),
            priority=rng.randint(-1, 1),
            penalised=rng.random() < 1 / 3,
            fate=rng.choices(("lives", "raises", "leaves"), (8, 1, 1))[0],
            at=rng.randint(1, 20),
        )
        for _ in range(count)
    ]
