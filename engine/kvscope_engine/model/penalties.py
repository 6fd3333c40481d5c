"""Changes of the logits before a token is chosen: biases, then three penalties.

In vLLM's order: `logit_bias` is added; `repetition_penalty` divides what is positive and multiplies
what is not, for every token of prompt and output; `frequency_penalty`, times how often the output
has the token, and `presence_penalty` are subtracted.
"""

import torch
from torch import Tensor

from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.token_history import TokenHistory

_LARGEST = torch.finfo(torch.float32).max


def adjust(row: Tensor, sequence: Sequence) -> None:
    """Change in place. row: (V,) float32, the logits of the token that follows the sequence's last.

    Rows of several sequences may have been copied from one.
    """
    sampling = sequence.sampling
    if sampling.logit_bias:
        token_ids, biases = zip(*sampling.logit_bias, strict=True)
        added = torch.tensor(biases, dtype=row.dtype, device=row.device)
        row[torch.tensor(token_ids, device=row.device)] += added
    if sampling.penalises:
        history = _history(sequence)
        if history.token_ids:
            _penalise(row, history, sampling)


def _history(sequence: Sequence) -> TokenHistory:
    if sequence.token_history is None:
        repeats = sequence.sampling.repetition_penalty != 1.0
        sequence.token_history = TokenHistory(
            set(sequence.prompt) if repeats else set(), sequence.prompt_length
        )
    sequence.token_history.follow(sequence.tokens)
    return sequence.token_history


def _penalise(row: Tensor, history: TokenHistory, sampling: SamplingParams) -> None:
    # Copies: an array cannot grow while a tensor lies over it.
    token_ids = torch.frombuffer(history.token_ids, dtype=torch.int64).to(row.device, copy=True)
    counts = torch.frombuffer(history.counts, dtype=torch.float32).to(row.device, copy=True)
    values = row[token_ids]
    penalty = min(sampling.repetition_penalty, _LARGEST)
    if penalty != 1.0:
        values = torch.where(values > 0, values / penalty, values * penalty)
    values -= sampling.frequency_penalty * counts
    values -= sampling.presence_penalty * (counts > 0)
    row[token_ids] = values.clamp_(-_LARGEST, _LARGEST)  # infinity minus infinity would be NaN
