"""Models on K and V of 8 bits: near the exact logits, and the same however a prompt is cut."""

from itertools import pairwise

import pytest
import torch
from transformers import PreTrainedModel

from kvscope_engine.config import ModelConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.kv_cache import FP8
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence
from tests.support.checkpoints import make_checkpoint

LENGTH = 40


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedModel:
    folder = make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return load_model(ModelConfig(model=str(folder), device="cpu")).model


def logits(model: PreTrainedModel, stored: torch.dtype | None, *cuts: int) -> torch.Tensor:
    """(V,) of the last token of a sequence that is computed in pieces."""
    runner = ModelRunner(model, num_blocks=12, block_size=4, execution=Execution(stored=stored))
    sequence = Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[(37 * position + 5) % 256 for position in range(LENGTH)],
        prompt_length=LENGTH,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", 4),
        block_table=[3, 7, 1, 9, 0, 11, 2, 8, 4, 10],
    )
    for start, end in pairwise((0, *cuts, LENGTH)):
        last = runner.forward_logits([ScheduledSequence(sequence, start, end - start)])
    return last[0]


def deviation(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def test_how_a_prompt_is_cut_does_not_change_its_logits(model: PreTrainedModel) -> None:
    whole = logits(model, FP8)
    for cuts in ((16,), (7, 30), tuple(range(20, LENGTH))):
        # Other sums of float32 may round an element of K or V to its other neighbour.
        assert deviation(logits(model, FP8, *cuts), whole) < 0.01


def test_logits_are_near_the_exact_ones_and_not_equal(model: PreTrainedModel) -> None:
    # 3 bits of mantissa, through 4 layers of wide random weights.
    assert 0.02 < deviation(logits(model, FP8), logits(model, None)) < 0.4
