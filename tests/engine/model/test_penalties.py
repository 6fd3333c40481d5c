"""Biases and penalties are those of vLLM and transformers, and follow from the tokens alone."""

import time
from random import Random

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.penalties import adjust
from kvscope_engine.model.sampler import Sampler
from kvscope_engine.request import SamplingParams, Sequence

VOCABULARY = 60


def sequence_of(prompt: list[int], output: list[int], **sampling: object) -> Sequence:
    return Sequence(
        sequence_id=0,
        request_id=0,
        tokens=prompt + output,
        prompt_length=len(prompt),
        sampling=SamplingParams(max_tokens=10_000, **sampling),
        hasher=PrefixHasher(b"", 16),
    )


def logits_of(seed: int, rows: int = 1, vocabulary: int = VOCABULARY) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3


def adjusted(logits: Tensor, sequence: Sequence) -> Tensor:
    row = logits[0].clone()
    adjust(row, sequence)
    return row


def definition(logits: Tensor, sequence: Sequence) -> Tensor:
    """vLLM's `apply_penalties`, in plain words: dense counts, three lines."""
    sampling, row = sequence.sampling, logits[0].clone()
    tokens = torch.tensor(sequence.tokens)
    output = tokens[sequence.prompt_length :].bincount(minlength=len(row))
    present = tokens.bincount(minlength=len(row)) > 0
    penalty = torch.where(present, torch.tensor(sampling.repetition_penalty), torch.ones(len(row)))
    row = torch.where(row > 0, row / penalty, row * penalty)
    row -= sampling.frequency_penalty * output
    row -= sampling.presence_penalty * (output > 0)
    return row


@pytest.mark.parametrize("penalty", [0.5, 1.0001, 1.3, 5.0])
def test_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    logits, random = logits_of(1), Random(1)
    prompt, output = random.choices(range(VOCABULARY), k=20), random.choices(range(30), k=20)
    ours = adjusted(logits, sequence_of(prompt, output, repetition_penalty=penalty))
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([prompt + output]), logits)
    assert torch.equal(ours, theirs[0])
    assert not torch.equal(ours, logits[0])


def test_logit_bias_is_that_of_transformers() -> None:
    logits = logits_of(2)
    biases = ((3, 5.0), (59, -100.0), (0, 0.25))
    ours = adjusted(logits, sequence_of([1, 2], [], logit_bias=biases))
    processor = SequenceBiasLogitsProcessor({(token,): bias for token, bias in biases})
    assert torch.equal(ours, processor(torch.tensor([[1, 2]]), logits)[0])


@pytest.mark.parametrize("presence", [0.0, 1.5, -2.0])
@pytest.mark.parametrize("frequency", [0.0, 0.7, -1.1])
@pytest.mark.parametrize("repetition", [1.0, 1.2])
def test_all_three_together_are_those_of_vllm(
    presence: float, frequency: float, repetition: float
) -> None:
    random = Random(3)
    for number in range(20):
        sequence = sequence_of(
            random.choices(range(VOCABULARY), k=random.randrange(1, 40)),
            random.choices(range(VOCABULARY), k=random.randrange(40)),
            presence_penalty=presence,
            frequency_penalty=frequency,
            repetition_penalty=repetition,
        )
        logits = logits_of(number)
        assert torch.equal(adjusted(logits, sequence), definition(logits, sequence))


def test_the_prompt_counts_for_repetition_only() -> None:
    logits = logits_of(4)
    sequence = sequence_of([1, 2, 3], [], presence_penalty=2.0, frequency_penalty=2.0)
    assert torch.equal(adjusted(logits, sequence), logits[0])


def test_a_history_that_grew_step_by_step_equals_one_made_anew() -> None:
    """As after preemption in another process: only the tokens count."""
    settings = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1}
    random, logits = Random(5), logits_of(5)
    growing = sequence_of([7, 7, 8], [], **settings)
    for _ in range(50):
        growing.tokens.append(random.randrange(VOCABULARY))
        anew = sequence_of(growing.prompt, growing.tokens[3:], **settings)
        assert torch.equal(adjusted(logits, growing), adjusted(logits, anew))
        assert torch.equal(adjusted(logits, growing), definition(logits, growing))


def test_only_the_rows_that_ask_are_changed_and_logits_are_not() -> None:
    logits = logits_of(6, rows=3)
    before = logits.clone()
    best = int(logits[1].argmax())
    sequences = [
        sequence_of([1], []),
        sequence_of([1], [], logit_bias=((best, -100.0),), logprobs=1),
        sequence_of([1], []),
    ]
    tokens = Sampler(seed=0).sample(logits, sequences)
    assert torch.equal(logits, before)
    plain = logits.argmax(-1).tolist()
    assert [tokens[0].token_id, tokens[2].token_id] == [plain[0], plain[2]]
    assert tokens[1].token_id == int(logits[1].topk(2).indices[1])
    raw = float(logits[1].log_softmax(-1)[tokens[1].token_id])
    assert tokens[1].logprob == pytest.approx(raw), "log probabilities are the model's, as in vLLM"
    assert tokens[1].alternatives == [(best, pytest.approx(float(logits[1].log_softmax(-1)[best])))]


@pytest.mark.parametrize("penalty", [5e-324, 1e-30, 1e30, 1.7e308])
def test_extreme_penalties_leave_numbers(penalty: float) -> None:
    logits = logits_of(7)
    logits[0, 5] = 0.0
    prompt = list(range(VOCABULARY))
    sequence = sequence_of(prompt, [], repetition_penalty=penalty, temperature=1.0, top_p=0.9)
    assert adjusted(logits, sequence).isfinite().all()
    assert 0 <= Sampler(seed=0).sample(logits, [sequence])[0].token_id < VOCABULARY


@pytest.mark.parametrize("min_p", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_min_p_keeps_what_transformers_keeps(min_p: float, temperature: float) -> None:
    logits = logits_of(8)
    kept = MinPLogitsWarper(min_p)(torch.zeros(1, 1, dtype=torch.long), logits / temperature)
    expected = set(kept[0].isfinite().nonzero()[:, 0].tolist())
    drawn = set()
    sampler = Sampler(seed=0)
    for length in range(1, 3000):
        sequence = sequence_of([0] * length, [], temperature=temperature, min_p=min_p)
        sequence.sequence_id = length
        drawn.add(sampler.sample(logits, [sequence])[0].token_id)
    assert drawn <= expected
    likely = (logits[0] / temperature).softmax(-1) > 0.01
    assert drawn >= expected & set(likely.nonzero()[:, 0].tolist())


def test_min_p_narrows_what_top_p_counts() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    settings = {"temperature": 1.0, "min_p": 0.4, "top_p": 0.66}
    drawn = {
        Sampler(seed=seed).sample(logits, [sequence_of([0], [], **settings)])[0].token_id
        for seed in range(200)
    }
    assert drawn == {0}, "0.5 of the 0.75 that min_p leaves is two thirds"


@pytest.mark.timed
def test_a_step_costs_the_same_after_a_long_output() -> None:
    """Only what is new is counted; the rest is a copy of the distinct tokens."""
    vocabulary = 32_000
    settings = {"frequency_penalty": 0.1, "repetition_penalty": 1.1}
    output = Random(9).choices(range(2000), k=100_000)
    long = sequence_of([1, 2, 3], output, **settings)
    logits = logits_of(9, vocabulary=vocabulary)
    adjust(logits[0].clone(), long)  # takes in what there is

    def seconds(sequence: Sequence) -> float:
        row, taken = logits[0].clone(), []
        for _ in range(30):
            sequence.tokens.append(5)
            began = time.perf_counter()
            adjust(row, sequence)
            taken.append(time.perf_counter() - began)
        return min(taken)

    short = sequence_of([1, 2, 3], Random(9).sample(range(2000), k=2000), **settings)
    adjust(logits[0].clone(), short)
    assert seconds(long) < 5 * seconds(short), "counting 100,000 tokens anew takes 50 times as long"
