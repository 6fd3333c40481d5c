"""Loads for an engine in simulated time, each drawn from one seed."""

import random

from tests.support.paced import Call

_BYTE = 256
_SYSTEM_PROMPTS = 4


def chats(
    *,
    seed: int,
    seconds: float,
    calls_per_second: float,
    turns: int = 8,
    pause_seconds: float = 10.0,
    system_tokens: int = 320,
    turn_tokens: int = 80,
    output_tokens: int = 100,
    most_tokens: int = 4000,
) -> list[Call]:
    """Conversations that begin at random; each turn sends all that was said before.

    The replies in a prompt are not those that the engine gave: only prompts are found again.
    """
    draw = random.Random(f"{seed}/chats")
    systems = [_words(draw, system_tokens) for _ in range(_SYSTEM_PROMPTS)]
    calls: list[Call] = []
    began = 0.0
    while began < seconds:
        began += draw.expovariate(calls_per_second / turns)
        at, said = began, draw.choice(systems)
        for _ in range(turns):
            said = said + _words(draw, draw.randint(turn_tokens // 2, turn_tokens * 3 // 2))
            answer = min(4 * output_tokens, max(4, int(draw.expovariate(1 / output_tokens))))
            if len(said) + answer > most_tokens:
                break
            calls.append(Call(at=at, prompt=said, output_tokens=answer))
            said = said + _words(draw, answer)
            at += draw.expovariate(1 / pause_seconds)
    return calls


def _words(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(_BYTE) for _ in range(count)]
