"""One choice of an answer: tokens in, text out, ended by the engine or by a stop string."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from engine.model.tokenizer import Tokenizer
from engine.sequence import Sequence
from engine.server.dispatch import Dispatcher
from engine.server.echo import EchoedPrompt
from engine.server.logprobs import LogprobWriter
from engine.server.stop_strings import StopPattern, StopStrings
from engine.step_plan import SampledToken
from kvscope_events.vocabulary import FinishReason

ECHOED_AT_ONCE = 256
"""Tokens of an echoed prompt in one piece; their log probabilities take a millisecond or two."""


class GenerationError(Exception):
    """The engine failed during this request."""


@dataclass(slots=True)
class Piece:
    """The output since the last piece; the last one has a finish reason."""

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    echoed: list[SampledToken] = field(default_factory=list)
    """Tokens of the prompt, shown before the new ones."""
    offsets: list[int] = field(default_factory=list)
    """Start of each token's text within the whole choice, in characters."""
    finish_reason: FinishReason | None = None

    def write(self, logprobs: LogprobWriter) -> None:
        """Append the log probabilities of these tokens."""
        for token, offset in zip(chain(self.echoed, self.tokens), self.offsets, strict=True):
            logprobs.add(token, offset)


class Choice:
    """A whole choice, gathered from its pieces."""

    def __init__(self, logprobs: LogprobWriter | None) -> None:
        self.token_ids: list[int] = []
        self.logprobs = logprobs
        self.finish_reason: FinishReason | None = None
        self._texts: list[str] = []
        self._total_logprob = 0.0

    @property
    def mean_logprob(self) -> float:
        """Mean over its tokens, if log probabilities were requested."""
        return self._total_logprob / max(1, len(self.token_ids))

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        self.token_ids += [token.token_id for token in piece.tokens]
        self._total_logprob += sum([token.logprob or 0.0 for token in piece.tokens])
        if self.logprobs is not None:
            piece.write(self.logprobs)
        self.finish_reason = piece.finish_reason


def best_choices(choices: Several[Choice], samples: int, n: int) -> list[Choice]:
    """The n samples of each prompt with the highest mean log probability, the best first."""
    return [
        choice
        for first in range(0, len(choices), samples)
        for choice in sorted(choices[first : first + samples], key=lambda c: -c.mean_logprob)[:n]
    ]


def logprobs_of(piece: Piece, logprobs: LogprobWriter | None) -> msgspec.Raw | None:
    """The log probabilities of one piece, if requested."""
    if logprobs is None:
        return None
    piece.write(logprobs)
    return msgspec.Raw(b"".join(logprobs.parts()))


async def generate(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    sequence: Sequence,
    stops: Several[StopPattern],
    echo: EchoedPrompt | None = None,
) -> AsyncIterator[Piece]:
    """Yields the pieces of a submitted sequence, several steps in one if the reader is slow.

    Text never contains a stop string, the token that stopped it or half a character. `echo` comes
    first. Raises GenerationError if the engine fails.
    """
    try:
        async for piece in _pieces(dispatcher, tokenizer, sequence, stops, echo):
            if echo is not None:
                if not piece.tokens and piece.finish_reason is None:
                    continue  # news of the prompt only
                if sequence.sampling.prompt_logprobs is not None:
                    echo.complete()
                await echo.wait()
                for part in _leading(echo, piece):
                    yield part
                    await asyncio.sleep(0)  # writing log probabilities takes time
                echo = None
            yield piece
    finally:
        if echo is not None and sequence.sampling.prompt_logprobs is not None:
            echo.complete()  # so the other choices do not wait forever


def _leading(prompt: EchoedPrompt, piece: Piece) -> Iterator[Piece]:
    """The pieces of a long prompt; the rest of it is put at the beginning of `piece`."""
    text, begin = prompt.text, 0
    for begin in range(0, len(prompt.tokens), ECHOED_AT_ONCE):
        end = begin + ECHOED_AT_ONCE
        if end >= len(prompt.tokens):
            break
        yield Piece(text, echoed=prompt.tokens[begin:end], offsets=prompt.offsets[begin:end])
        text = ""
    piece.text = text + piece.text
    piece.echoed = prompt.tokens[begin:]
    piece.offsets = prompt.offsets[begin:] + piece.offsets


async def _pieces(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    sequence: Sequence,
    stops: Several[StopPattern],
    echo: EchoedPrompt | None,
) -> AsyncIterator[Piece]:
    """Like `generate`, except for the prompt, which goes to `echo`."""
    detokenizer = tokenizer.detokenizer()
    stop_strings = StopStrings(stops)
    length = 0 if echo is None else len(echo.text)  # characters decoded, shown or held back
    async for outputs in dispatcher.outputs(sequence):
        piece = Piece()
        for _, token, finish_reason, prompt_tokens in outputs:
            if finish_reason == "error":
                raise GenerationError("the engine failed while this request was under way")
            if echo is not None and prompt_tokens is not None:
                echo.add(prompt_tokens)
            piece.finish_reason = finish_reason
            if token is None:
                continue
            piece.tokens.append(token)
            piece.offsets.append(length)
            if finish_reason == "stop":
                continue  # an end-of-sequence or stop token has no text
            text = detokenizer.add([token.token_id])
            length += len(text)
            shown, stopped = stop_strings.add(text)
            piece.text += shown
            if stopped:
                dispatcher.stop(sequence)
                piece.finish_reason = "stop"
                yield piece
                return
        if piece.finish_reason is not None:
            shown, stopped = stop_strings.add(detokenizer.finish())
            piece.text += shown if stopped else shown + stop_strings.flush()
        yield piece
