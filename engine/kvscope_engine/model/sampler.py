"""The next token of each row: greedy, or drawn by a number that depends only on the row.

A draw needs one uniform number. It is a hash of the call's seed and the token's position, so
there is no generator to keep: preemption, batch order and device do not change what a sequence
draws, and nothing has to be released when it ends.

Rows are only ever copied a few at a time: a batch's logits are hundreds of MiB, and whatever is as
large as they are would be memory that the KV cannot have.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from kvscope_engine.model.penalties import adjust
from kvscope_engine.request import Sequence
from kvscope_engine.step_plan import SampledToken

_MASK = (1 << 64) - 1
_ELEMENTS_AT_ONCE = 1 << 21
"""Logits that are copied together: sorted in float64 they take 100 MiB, all of a large batch's more
than the rest of its step.
"""


class Sampler:
    """Chooses tokens. `seed` serves calls without a seed of their own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def sample(self, logits: Tensor, sequences: list[Sequence]) -> list[SampledToken]:
        """One token per row. logits: (N, V) float32, row i belonging to sequences[i]."""
        changed: list[int] = []
        plain: list[int] = []
        filtered: list[int] = []
        reported: list[int] = []
        for row, sequence in enumerate(sequences):
            sampling = sequence.sampling
            if sampling.temperature != 0.0:
                narrowed = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
                (filtered if narrowed else plain).append(row)
            elif sampling.changes_logits:
                changed.append(row)
            if sampling.logprobs is not None:
                reported.append(row)
        # Every row's likeliest token, then those of the rows that choose from a copy.
        chosen = [logits.argmax(dim=-1)]
        order = list(range(len(sequences)))
        for choose, choosing in (
            (_likeliest, changed),
            (_draw, plain),
            (_draw_filtered, filtered),
        ):
            for part in _parts(len(choosing), logits.shape[1]):
                rows = choosing[part]
                owners = [sequences[row] for row in rows]
                copies = logits[rows]
                for number, owner in enumerate(owners):
                    if owner.sampling.changes_logits:
                        adjust(copies[number], owner)
                uniforms = [self._uniform(owner) for owner in owners]
                chosen.append(choose(copies, owners, uniforms))
                order += rows
        # One wait for the device. A row's last entry counts.
        token_ids: dict[int, int] = dict(zip(order, torch.cat(chosen).tolist(), strict=True))
        tokens = [SampledToken(token_ids[row]) for row in range(len(sequences))]
        if reported:
            _report(tokens, logits, sequences, reported)
        return tokens

    def _uniform(self, sequence: Sequence) -> float:
        """A number in [0, 1) for the token that follows the sequence's last."""
        seed = sequence.sampling.seed
        if seed is None:
            seed = _mix(_mix(self._seed) ^ sequence.sequence_id)
        return (_mix(_mix(seed) ^ len(sequence.tokens)) >> 11) * 2.0**-53


def _mix(number: int) -> int:
    """64 well-mixed bits. Source: splitmix64, Steele et al. 2014."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def _parts(count: int, vocab_size: int) -> Iterator[slice]:
    """The parts of a list of `count` rows whose logits may be copied together."""
    at_once = max(1, _ELEMENTS_AT_ONCE // vocab_size)
    return (slice(begin, begin + at_once) for begin in range(0, count, at_once))


def _likeliest(logits: Tensor, sequences: list[Sequence], uniforms: list[float]) -> Tensor:
    """Token ids (N,), without a draw. logits: (N, V)."""
    return logits.argmax(dim=-1)


def _probabilities(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """(N, V) float64, scaled by temperature. Shifted first: tiny temperatures must not overflow."""
    temperatures = _column([sequence.sampling.temperature for sequence in sequences], logits)
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return (shifted / temperatures).softmax(dim=-1)


def _draw(logits: Tensor, sequences: list[Sequence], uniforms: list[float]) -> Tensor:
    """Token ids (N,) from the whole vocabulary. logits: (N, V). uniforms: N, in [0, 1)."""
    cumulative = _probabilities(logits, sequences).cumsum(dim=-1)
    targets = _column(uniforms, logits) * cumulative[:, -1:]
    indices = torch.searchsorted(cumulative, targets, right=True)
    return indices.clamp_(max=logits.shape[1] - 1)[:, 0]


def _draw_filtered(logits: Tensor, sequences: list[Sequence], uniforms: list[float]) -> Tensor:
    """Token ids (N,) of each row's top_k and min_p, and of those from the likeliest of mass top_p.

    Drawn in the order of the vocabulary, as without a filter: the order of two almost equally
    likely tokens would depend on a batch's rounding.
    """
    vocab_size = logits.shape[1]
    probabilities = _probabilities(logits, sequences)
    ordered, token_ids = probabilities.sort(dim=-1, descending=True, stable=True)
    cumulative = ordered.cumsum(dim=-1)
    # Ranks [0, last] stay: the first top_k, those of min_p, then up to the rank that completes
    # top_p of their mass.
    top_k = [min(sequence.sampling.top_k or vocab_size, vocab_size) for sequence in sequences]
    narrowest = torch.tensor(top_k, device=logits.device)[:, None] - 1
    min_p = [sequence.sampling.min_p for sequence in sequences]
    if any(min_p):
        likely = ordered >= _column(min_p, logits) * ordered[:, :1]
        narrowest = narrowest.minimum(likely.sum(dim=1, keepdim=True) - 1)
    mass = cumulative.gather(1, narrowest)
    top_p = _column([sequence.sampling.top_p for sequence in sequences], logits)
    last = torch.searchsorted(cumulative, top_p * mass).minimum(narrowest)
    stays = torch.arange(vocab_size, device=logits.device) <= last
    kept = torch.zeros_like(stays).scatter_(1, token_ids, stays)
    cumulative = (probabilities * kept).cumsum(dim=-1)
    targets = _column(uniforms, logits) * cumulative[:, -1:]
    indices = torch.searchsorted(cumulative, targets, right=True)
    # Rounded up to the whole mass, a target would lie beyond the last token that is kept.
    final = vocab_size - 1 - kept.flip(-1).to(torch.int8).argmax(dim=-1, keepdim=True)
    return indices.minimum(final)[:, 0]


def _column(numbers: list[float], like: Tensor) -> Tensor:
    """(N, 1) float64 on the device of `like`."""
    return torch.tensor(numbers, dtype=torch.float64, device=like.device)[:, None]


def _score(
    logits: Tensor, rows: list[int], token_ids: list[int], alternatives: int
) -> list[SampledToken]:
    """Given tokens with their log probabilities: token_ids[i] by logits[rows[i]].

    logits: (N, V) float32. At least one row.
    """
    chosen, best_ids, best_logprobs = [], [], []
    for part in _parts(len(rows), logits.shape[1]):
        logprobs = logits[rows[part]].log_softmax(dim=-1)
        chosen_ids = torch.tensor(token_ids[part], device=logits.device)
        chosen.append(logprobs.gather(1, chosen_ids[:, None])[:, 0])
        best = logprobs.topk(min(alternatives, logits.shape[1]), dim=-1)
        best_ids.append(best.indices)
        best_logprobs.append(best.values)
    columns = [torch.cat(parts).tolist() for parts in (chosen, best_ids, best_logprobs)]
    return [
        SampledToken(token_id, logprob, list(zip(ids, likeliest, strict=True)))
        for token_id, logprob, ids, likeliest in zip(token_ids, *columns, strict=True)
    ]


def _report(
    tokens: list[SampledToken], logits: Tensor, sequences: list[Sequence], rows: list[int]
) -> None:
    """Replace the tokens of `rows` by ones that carry log probabilities."""
    counts = [sequences[row].sampling.logprobs or 0 for row in rows]
    scored = _score(logits, rows, [tokens[row].token_id for row in rows], max(counts))
    for row, count, token in zip(rows, counts, scored, strict=True):
        alternatives = token.alternatives or []
        tokens[row] = token._replace(alternatives=alternatives[:count])
