"""Greedy choice, draws that depend on nothing but the sequence, and log probabilities."""

from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.sampler import Sampler
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import SampledToken


def make_sequence(sequence_id: int = 0, length: int = 5, **sampling: object) -> Sequence:
    return Sequence(
        sequence_id=sequence_id,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=SamplingParams(max_tokens=10, **sampling),
        hasher=PrefixHasher(b"", 16),
    )


def make_logits(rows: int, vocab_size: int = 50, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 2


def draw(logits: Tensor, count: int = 4000, **sampling: object) -> Counter[int]:
    """Tokens drawn at successive positions from one row of logits."""
    sampler = Sampler(seed=0)
    sequences = [make_sequence(length=length, **sampling) for length in range(1, count + 1)]
    sampled = sampler.sample(logits.expand(count, -1), sequences)
    return Counter(token.token_id for token in sampled)


class Allocations(TorchDispatchMode):
    """The most bytes that tensors made by operations take at a time."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._given = given.untyped_storage()
        self._living = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            storage = tensor.untyped_storage()
            if storage is not self._given:
                self._living[storage] = storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, sum(self._living.values()))
        return result


def test_greedy_is_the_likeliest() -> None:
    logits = make_logits(7)
    sampled = Sampler(seed=0).sample(logits, [make_sequence(row) for row in range(7)])
    assert sampled == [SampledToken(token_id) for token_id in logits.argmax(-1).tolist()]


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 5.0, "top_k": 1},
        {"temperature": 5.0, "top_p": 1e-9},
        {"temperature": 1e-30},
        {"temperature": 1e-30, "top_k": 3, "top_p": 0.9},
        {"temperature": 1e-300},  # 0 in single precision
    ],
)
def test_narrowest_settings_equal_greedy(sampling: dict[str, float]) -> None:
    logits = make_logits(40)
    sequences = [make_sequence(row, **sampling) for row in range(40)]
    tokens = [token.token_id for token in Sampler(seed=3).sample(logits, sequences)]
    assert tokens == logits.argmax(-1).tolist()


@pytest.mark.parametrize("filters", [{}, {"top_k": 10}, {"top_p": 0.8}, {"min_p": 0.1}])
def test_a_draw_does_not_depend_on_the_batch(filters: dict[str, float]) -> None:
    logits = make_logits(6)
    target = make_sequence(9, temperature=1.0, seed=42, **filters)
    alone = Sampler(seed=0).sample(logits[2:3], [target])[0]
    others = [
        make_sequence(0, temperature=0.7),
        make_sequence(1),
        target,
        make_sequence(3, temperature=1.5, top_k=5),
        make_sequence(4, temperature=1.5, top_p=0.5, min_p=0.3),
        make_sequence(5, logprobs=2),
    ]
    assert Sampler(seed=1).sample(logits, others)[2] == alone


def test_which_of_two_equally_likely_tokens_comes_first_does_not_matter() -> None:
    """Rounding differs from batch to batch; a preempted sample once went on with another token."""
    one = make_logits(1)
    first = int(one.argmax())
    second = (first + 24) % 50
    one[0, second] = one[0, first]
    other = one.clone()
    for logits, token_id in ((one, first), (other, second)):
        logits[0, token_id] = torch.nextafter(logits[0, token_id], torch.tensor(99.0))
    drawn = [draw(logits, temperature=1.0, top_k=45) for logits in (one, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0][first] > 0 < drawn[0][second]


def test_sequences_without_a_seed_draw_differently_and_repeatably() -> None:
    logits = make_logits(1, vocab_size=1000).expand(50, -1)
    sequences = [make_sequence(number, temperature=2.0) for number in range(50)]
    first = Sampler(seed=7).sample(logits, sequences)
    assert first == Sampler(seed=7).sample(logits, sequences)
    assert first != Sampler(seed=8).sample(logits, sequences)
    assert len({token.token_id for token in first}) > 25


def test_draws_follow_the_distribution() -> None:
    logits = make_logits(1, vocab_size=8)
    counts = draw(logits, temperature=1.5, seed=1)
    expected = (logits[0] / 1.5).softmax(-1)
    for token_id, probability in enumerate(expected.tolist()):
        assert counts[token_id] / 4000 == pytest.approx(probability, abs=0.03)


def test_top_k_and_top_p_keep_only_the_likeliest() -> None:
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    assert set(draw(logits, temperature=1.0, top_k=2)) == {1, 3}
    assert set(draw(logits, temperature=1.0, top_p=0.75)) == {1, 3}
    assert set(draw(logits, temperature=1.0, top_p=0.76)) == {1, 2, 3}
    # top_p counts within the top_k: 0.5 of (0.5 + 0.25) is two thirds.
    assert set(draw(logits, temperature=1.0, top_k=2, top_p=0.66)) == {1}
    assert set(draw(logits, temperature=1.0, top_k=100)) == {0, 1, 2, 3}
    kept = draw(logits, temperature=1.0, top_k=2)
    assert kept[1] / 4000 == pytest.approx(2 / 3, abs=0.03)


def test_log_probabilities_are_those_of_the_unscaled_logits() -> None:
    logits = make_logits(3)
    sequences = [
        make_sequence(0, logprobs=3, temperature=4.0, seed=1),
        make_sequence(1),
        make_sequence(2, logprobs=0),
    ]
    drawn, plain, chosen_only = Sampler(seed=0).sample(logits, sequences)
    expected = logits.log_softmax(-1)
    assert plain.logprob is None
    assert plain.alternatives is None
    assert drawn.logprob == pytest.approx(float(expected[0, drawn.token_id]))
    best = expected[0].topk(3)
    assert drawn.alternatives is not None
    assert [token_id for token_id, _ in drawn.alternatives] == best.indices.tolist()
    assert [logprob for _, logprob in drawn.alternatives] == pytest.approx(best.values.tolist())
    assert chosen_only.logprob == pytest.approx(float(expected[2].max()))
    assert chosen_only.alternatives == []


def test_no_rows() -> None:
    assert Sampler(seed=0).sample(torch.empty(0, 50), []) == []


def test_rows_copied_in_several_pieces_are_those_copied_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = make_logits(11)
    kinds = [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}]
    sequences = [
        make_sequence(
            row,
            logprobs=row % 4 or None,
            logit_bias=((row, 4.0),) if row % 5 else (),
            **kinds[row % 3],
        )
        for row in range(11)
    ]
    at_once = Sampler(seed=0).sample(logits, sequences)
    monkeypatch.setattr("kvscope_engine.model.sampler._ELEMENTS_AT_ONCE", 2 * logits.shape[1])
    assert Sampler(seed=0).sample(logits, sequences) == at_once


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}],
    ids=["greedy", "drawn", "filtered"],
)
def test_only_the_logits_themselves_are_as_large_as_a_batch(
    sampling: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vocab_size, rows_at_once = 64, 5000, 2
    monkeypatch.setattr("kvscope_engine.model.sampler._ELEMENTS_AT_ONCE", rows_at_once * vocab_size)
    logits = make_logits(rows, vocab_size)
    sequences = [
        make_sequence(row, logprobs=3, logit_bias=((1, 2.0),), **sampling) for row in range(rows)
    ]
    with Allocations(logits) as allocations:
        Sampler(seed=0).sample(logits, sequences)
    copied = rows_at_once * logits[0].nbytes
    # Sorting takes some float64 and int64 tensors of a copy's shape, 2 copies each.
    assert copied <= allocations.peak_bytes <= 16 * copied < logits.nbytes
