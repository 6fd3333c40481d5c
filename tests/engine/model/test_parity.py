"""Logits of the paged path against plain transformers, for every family of architectures."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from kvscope_engine.config import ModelConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from tests.support.checkpoints import ARCHITECTURES, make_checkpoint
from tests.support.served import served_execution

TOLERANCE = 1e-4
NUM_BLOCKS = 160


class Sequences:
    """Sequences with scattered block tables out of one pool; a spare block stays between them."""

    def __init__(self, runner: ModelRunner, block_size: int, seed: int) -> None:
        self.runner = runner
        self.block_size = block_size
        self.random = random.Random(seed)
        self.free = list(range(NUM_BLOCKS))
        self.random.shuffle(self.free)

    def make(self, length: int) -> Sequence:
        tokens = [self.random.randrange(256) for _ in range(length)]
        return Sequence(
            sequence_id=length,
            request_id=length,
            tokens=tokens,
            prompt_length=length,
            sampling=SamplingParams(max_tokens=8),
            hasher=PrefixHasher(b"", self.block_size),
            block_table=[self.free.pop() for _ in range(-(-length // self.block_size))],
        )

    def run(self, *rows: tuple[Sequence, int, int]) -> Tensor:
        return self.runner.forward_logits([ScheduledSequence(*row) for row in rows])


def make_runner(model: PreTrainedModel, block_size: int) -> ModelRunner:
    execution = served_execution(model.device)
    return ModelRunner(model, num_blocks=NUM_BLOCKS, block_size=block_size, execution=execution)


def execute(runner: ModelRunner, *rows: ScheduledSequence) -> list[SampledToken | None]:
    return runner.execute(StepPlan(list(rows)))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def paged_model(folder: Path) -> PreTrainedModel:
    return load_model(ModelConfig(model=str(folder), device="cpu")).model


@pytest.fixture(scope="module")
def reference(folder: Path) -> Callable[[list[int]], Tensor]:
    """All logits of one sequence, (T, V), by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()

    def logits(tokens: list[int]) -> Tensor:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]

    return logits


@pytest.mark.parametrize("block_size", [4, 16])
def test_whole_prompts(
    paged_model: PreTrainedModel, reference: Callable[[list[int]], Tensor], block_size: int
) -> None:
    runner = make_runner(paged_model, block_size)
    pool = Sequences(runner, block_size, seed=1)
    sequences = [pool.make(length) for length in (1, 2, 15, 16, 17, 61, 200)]
    logits = pool.run(*[(sequence, 0, len(sequence.tokens)) for sequence in sequences])
    for row, sequence in enumerate(sequences):
        torch.testing.assert_close(
            logits[row], reference(sequence.tokens)[-1], atol=TOLERANCE, rtol=TOLERANCE
        )


def test_chunks_decodes_and_prompts_in_one_batch(
    paged_model: PreTrainedModel, reference: Callable[[list[int]], Tensor]
) -> None:
    runner = make_runner(paged_model, 4)
    pool = Sequences(runner, 4, seed=2)
    decoding = [pool.make(length) for length in (5, 26, 64, 118)]
    chunked, late = pool.make(90), pool.make(50)
    cuts = (0, 7, 30, 31, 65, 90)
    pool.run(*[(sequence, 0, len(sequence.tokens) - 4) for sequence in decoding])
    expected = {sequence: reference(sequence.tokens) for sequence in [*decoding, chunked, late]}
    for step, (start, end) in enumerate(pairwise(cuts)):
        rows = [(chunked, start, end - start)]
        if step < 4:
            rows += [(sequence, len(sequence.tokens) - 4 + step, 1) for sequence in decoding]
        if step == 2:
            rows.insert(1, (late, 0, 50))
        logits = pool.run(*rows)
        sampling = [row for row in rows if sum(row[1:]) == len(row[0].tokens)]
        assert len(logits) == len(sampling)
        for got, (sequence, _, _) in zip(logits, sampling, strict=True):
            torch.testing.assert_close(got, expected[sequence][-1], atol=TOLERANCE, rtol=TOLERANCE)


def test_greedy_continuation_equals_generate(
    paged_model: PreTrainedModel, reference: Callable[[list[int]], Tensor]
) -> None:
    runner = make_runner(paged_model, 4)
    pool = Sequences(runner, 4, seed=3)
    sequence = pool.make(40)
    sequence.block_table += [pool.free.pop() for _ in range(4)]
    prompt = list(sequence.tokens)
    start = 0
    for _ in range(12):
        (token,) = execute(runner, ScheduledSequence(sequence, start, len(sequence.tokens) - start))
        assert token is not None
        start = len(sequence.tokens)
        sequence.tokens.append(token.token_id)
    for _ in range(12):
        prompt.append(int(reference(prompt)[-1].argmax()))
    assert sequence.tokens == prompt


def test_only_the_rows_own_slots_are_written(paged_model: PreTrainedModel) -> None:
    runner = make_runner(paged_model, 4)
    pool = Sequences(runner, 4, seed=4)
    whole, partial, decoding = pool.make(37), pool.make(30), pool.make(9)
    pool.run((partial, 0, 10), (decoding, 0, 8))
    before = [layer.clone() for layer in runner.cache.layers]
    pool.run((decoding, 8, 1), (partial, 10, 9), (whole, 0, 37))
    owned = {
        sequence.block_table[position // 4] * 4 + position % 4
        for sequence, start, count in ((decoding, 8, 1), (partial, 10, 9), (whole, 0, 37))
        for position in range(start, start + count)
    }
    for old, new in zip(before, runner.cache.layers, strict=True):
        changed = (old != new).flatten(1, 2).any(dim=-1).any(dim=-1)  # (2, slots)
        for kind in range(2):
            assert set(changed[kind].nonzero().flatten().tolist()) == owned


@pytest.mark.parametrize("left_behind", [float("nan"), float("inf")])
def test_what_an_earlier_owner_left_in_a_block_does_not_reach_a_later_one(
    paged_model: PreTrainedModel, left_behind: float
) -> None:
    clean, dirty = (make_runner(paged_model, 4) for _ in range(2))
    for cuts in ((0, 22), (0, 3, 9, 22), tuple(range(23))):  # whole, in chunks, token by token
        for layer in dirty.cache.layers:
            layer.fill_(left_behind)
        logits = []
        for runner in (clean, dirty):
            pool = Sequences(runner, 4, seed=7)
            sequence = pool.make(22)
            for start, end in pairwise(cuts):
                last = pool.run((sequence, start, end - start))
            logits.append(last)
        torch.testing.assert_close(logits[1], logits[0], atol=0, rtol=0)


def test_results_come_in_the_order_of_the_rows(paged_model: PreTrainedModel) -> None:
    runner = make_runner(paged_model, 4)
    pool = Sequences(runner, 4, seed=6)
    sequences = [pool.make(length) for length in (5, 30, 12, 1, 21)]
    whole = [ScheduledSequence(sequence, 0, len(sequence.tokens)) for sequence in sequences]
    alone = [execute(runner, row)[0] for row in whole]
    part = ScheduledSequence(sequences[1], 0, 8)
    last = ScheduledSequence(sequences[2], 11, 1)
    rows = [part, whole[4], whole[3], last, whole[0]]
    assert execute(runner, *rows) == [None, alone[4], alone[3], alone[2], alone[0]]


def test_a_batch_in_which_no_row_samples(paged_model: PreTrainedModel) -> None:
    runner = make_runner(paged_model, 4)
    pool = Sequences(runner, 4, seed=5)
    sequence = pool.make(20)
    assert execute(runner, ScheduledSequence(sequence, 0, 10)) == [None]
