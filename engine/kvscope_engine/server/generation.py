"""One choice of an answer: tokens in, text out, ended by the engine or by a stop string."""

from array import array
from collections.abc import AsyncIterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

import msgspec

from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.request import Sequence
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.logprobs import LogprobWriter
from kvscope_engine.step_plan import SampledToken
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


class GenerationError(Exception):
    """The engine failed during this request."""


@dataclass(slots=True)
class Piece:
    """The output since the last piece; the last one has a finish reason."""

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Start of each token's text within the whole choice, in characters."""
    finish_reason: FinishReason | None = None

    def write(self, logprobs: LogprobWriter) -> None:
        """Append the log probabilities of these tokens."""
        for token, offset in zip(self.tokens, self.offsets, strict=True):
            logprobs.add(token, offset)


class Choice:
    """A whole choice, gathered from its pieces."""

    def __init__(self, logprobs: LogprobWriter | None) -> None:
        self.token_ids: list[int] = []
        self.logprobs = logprobs
        self.finish_reason: FinishReason | None = None
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        self.token_ids += [token.token_id for token in piece.tokens]
        if self.logprobs is not None:
            piece.write(self.logprobs)
        self.finish_reason = piece.finish_reason


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
) -> AsyncIterator[Piece]:
    """Yields the pieces of a submitted sequence, several steps in one if the reader is slow.

    Text never contains a stop string, the token that stopped it or half a character. Raises
    GenerationError if the engine fails.
    """
    detokenizer = tokenizer.detokenizer()
    stop_strings = StopStrings(stops)
    length = 0  # characters decoded, shown or held back
    async for outputs in dispatcher.outputs(sequence):
        piece = Piece()
        for _, token, finish_reason in outputs:
            if finish_reason == "error":
                raise GenerationError("the engine failed while this request was under way")
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
