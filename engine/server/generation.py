"""One choice of an answer: tokens in, text out, ended by the engine or by a stop string."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from engine.model.tokenizer import Tokenizer
from engine.request import Sequence
from engine.server.dispatch import Dispatcher
from engine.server.logprobs import LogprobWriter
from engine.step_plan import SampledToken
from kvscope_events.vocabulary import FinishReason


class StopPattern:
    """A stop string and its fallback positions at a mismatch; shared by all choices.

    Knuth, Morris and Pratt's search: work proportional to the text, whatever the string is.
    """

    __slots__ = ("_failures", "_stop")

    def __init__(self, stop: str) -> None:
        self._stop = stop
        # [i]: length of the longest beginning of the string that also ends its first i + 1.
        self._failures = array("I", bytes(4 * len(stop)))
        length = 0
        for index in range(1, len(stop)):
            length = self._advance(length, stop[index])
            self._failures[index] = length

    def __len__(self) -> int:
        return len(self._stop)

    def search(self, text: str, matched: int) -> tuple[int, int | None]:
        """Continue after `matched` characters of it.

        Returns how many the text now ends with, and the index after the whole string if it came.
        """
        begin = 0
        if not matched:  # most text does not even hold its first character
            begin = text.find(self._stop[0])
            if begin < 0:
                return 0, None
        for index in range(begin, len(text)):
            matched = self._advance(matched, text[index])
            if matched == len(self._stop):
                return matched, index + 1
        return matched, None

    def _advance(self, matched: int, character: str) -> int:
        while matched and self._stop[matched] != character:
            matched = self._failures[matched - 1]
        return matched + (self._stop[matched] == character)


class StopStrings:
    """Text goes in as it is decoded and comes out as soon as no stop string can begin in it."""

    def __init__(self, patterns: Several[StopPattern]) -> None:
        self._patterns = patterns
        self._matched = [0] * len(patterns)
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """Returns the text that may be shown now, and whether a stop string ended it.

        The first string to be complete ends it; of two at once, the longer.
        """
        if not self._patterns:
            return text, False
        stopped: tuple[int, int] | None = None  # where it ends in `text`, less is better; -length
        for index, pattern in enumerate(self._patterns):
            self._matched[index], end = pattern.search(text, self._matched[index])
            if end is not None:
                found = (end, -len(pattern))
                stopped = found if stopped is None else min(stopped, found)
        held = self._held + text
        if stopped is not None:
            end, length = stopped[0], -stopped[1]
            shown = held[: len(self._held) + end - length]
            self._held = ""
            return shown, True
        cut = len(held) - max(self._matched)
        self._held = held[cut:]
        return held[:cut], False

    def flush(self) -> str:
        """Returns the text held back, when the sequence ends without a stop string."""
        shown, self._held = self._held, ""
        return shown


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


class EchoedPrompt:
    """The prompt at the beginning of an answer (`echo`), with log probabilities if requested.

    All choices of a prompt share it. The first one's steps score its tokens; the others wait for
    them. Belongs to the event loop's thread.
    """

    def __init__(self, tokenizer: Tokenizer, text: str, prompt: list[int], *, scored: bool) -> None:
        """scored: show the tokens as well, with log probabilities."""
        self.text = text
        self.tokens: list[SampledToken] = []
        """The tokens known so far."""
        self.offsets: list[int] = []
        """Start of each token's text, in characters."""
        self._detokenizer = tokenizer.detokenizer()
        self._length = 0
        self._complete = asyncio.Event()
        if scored:  # the first token has no log probability: nothing comes before it
            self.add([SampledToken(prompt[0])])
        else:
            self.complete()

    def add(self, scored: list[SampledToken]) -> None:
        """Add the next tokens."""
        for token in scored:
            self.tokens.append(token)
            self.offsets.append(min(self._length, len(self.text)))
            self._length += len(self._detokenizer.add([token.token_id]))

    def complete(self) -> None:
        """No more will come: all are known, or the sequence that scores them has ended."""
        self._complete.set()

    async def wait(self) -> None:
        """Wait until it is complete."""
        await self._complete.wait()


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
