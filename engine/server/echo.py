"""The prompt at the beginning of an answer (`echo`), with log probabilities if requested.

All choices of a prompt share it. The first one's steps score its tokens; the others wait for them.
"""

import asyncio

from engine.model.tokenizer import Tokenizer
from engine.step_plan import SampledToken


class EchoedPrompt:
    """One prompt of a call. Belongs to the event loop's thread."""

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
