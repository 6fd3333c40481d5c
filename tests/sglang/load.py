"""A load for SGLang's scheduler, put in where it would read its socket, and its replies."""

import random
from array import array
from collections import Counter
from typing import Any

MOST_NEW = 4
"""Requests that arrive between two steps at most."""


class Load:
    """Prefixes that repeat, requests that leave, and one flush while nothing runs."""

    def __init__(self, requests: int, *, live: int = 12, priority: bool = False) -> None:
        self.requests = requests
        self.live: set[str] = set()
        self.sent = 0
        self.flushed = False
        self.replies: Counter[str] = Counter()
        self.tokens: dict[str, list[int]] = {}
        """By request; those of the end of its prompt come first, for a detokenizer."""
        self._most, self._priority = live, priority
        self._random = random.Random(7)
        self._systems = [self._tokens(self._random.randint(40, 200)) for _ in range(5)]
        self._past: list[list[int]] = []

    def receive(self, scheduler: Any) -> list[Any]:
        """Called where the scheduler reads its socket, before a step."""
        from sglang.srt.managers.io_struct import AbortReq, FlushCacheReqInput

        rng, new = self._random, list[Any]()
        half = self.sent == self.requests // 2 and not self.flushed
        if half and not self.live and scheduler.is_fully_idle():
            self.flushed = True
            return [FlushCacheReqInput()]
        while not half and len(self.live) < self._most and self.sent < self.requests:
            if len(new) >= MOST_NEW or rng.random() < 0.3:
                break
            new.append(self._next())
            half = self.sent == self.requests // 2 and not self.flushed
        if self.live and rng.random() < 0.02:
            new.append(AbortReq(rid=rng.choice(sorted(self.live))))
        if self.sent == self.requests and not self.live and not new:
            scheduler.gracefully_exit = scheduler.is_fully_idle()
        return new

    def reply(self, output: Any) -> None:
        """Called where the scheduler writes to its socket."""
        if type(output).__name__ == "AbortReq":
            self.replies["aborted"] += output.rid in self.live
            self.live.discard(output.rid)
        for place, reason in enumerate(getattr(output, "finished_reasons", None) or ()):
            self.tokens.setdefault(output.rids[place], []).extend(output.decode_ids[place])
            if reason is None:
                continue
            self.live.discard(output.rids[place])
            kind = reason["type"] if isinstance(reason, dict) else ""
            self.replies["finished"] += 1
            self.replies["aborted"] += kind == "abort"
            self.replies["prompt"] += output.prompt_tokens[place]
            self.replies["output"] += output.completion_tokens[place]

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randint(3, 250) for _ in range(count)]

    def _next(self) -> Any:
        rng, kind = self._random, self._random.random()
        if kind < 0.5 or not self._past:
            ids = rng.choice(self._systems) + self._tokens(rng.randint(5, 120))
        elif kind < 0.7:
            ids = (rng.choice(self._past) + self._tokens(rng.randint(5, 60)))[:350]
        elif kind < 0.8:
            ids = rng.choice(self._past)
        else:
            ids = self._tokens(rng.randint(20, 350))
        self._past.append(ids)
        tokens = rng.choice((8, 32, 64, 150))
        self.sent += 1
        rid = f"r{self.sent}"
        self.live.add(rid)
        priority = rng.choice((0, 5)) if self._priority else None
        # Without ignore_eos: with it, admission simulates the fit, and nothing is retracted.
        return make_request(rid, ids, tokens, priority=priority)


def make_request(
    rid: str, ids: list[int], tokens: int, *, ignore_eos: bool = False, priority: int | None = None
) -> Any:
    """A request as SGLang's tokenizer would send it; tokens: most that it may generate."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    params = SamplingParams(max_new_tokens=tokens, temperature=0, ignore_eos=ignore_eos)
    params.normalize(None)
    return TokenizedGenerateReqInput(
        rid=rid,
        input_text="",
        input_ids=array("q", ids),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=params,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        priority=priority,
    )
