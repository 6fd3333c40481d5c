"""Decode steps of fixed size, padded, against steps as large as their rows; no graphs here."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvscope_engine.config import ModelConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model import graphs
from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.torch_backend import attend
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.graphs import StaticDecoding
from kvscope_engine.model.kv_cache import FP8, KVCache
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.model.swap_space import SwapSpace
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence, StepPlan
from tests.support.checkpoints import ARCHITECTURES, make_checkpoint

BLOCK_SIZE = 4
NUM_BLOCKS = 64


class PlainStatic:
    """A `StaticBackend` in plain torch: reads tables and contexts at every call, as kernels do."""

    def __init__(self, cache: KVCache, tables: Tensor, contexts: Tensor, longest: int) -> None:
        self.cache, self.tables, self.contexts = cache, tables, contexts

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: LayerOptions) -> Tensor:
        rows = []
        for row, context in enumerate(self.contexts.tolist()):
            low = 0 if options.window is None else max(0, context - options.window)
            blocks = self.tables[row, : -(-context // BLOCK_SIZE)].long()
            keys, values = (
                gathered.flatten(0, 1)[low:context].transpose(0, 1)[None]
                for gathered in self.cache.gather(options.layer, blocks)
            )
            one = query[:, :, row : row + 1]
            mask = torch.zeros(1, 1, 1, context - low, dtype=query.dtype)
            rows.append(attend(one, keys, values, mask, options.scaling, options.softcap)[0, :, 0])
        return torch.stack(rows)


STATIC = StaticDecoding(attention=PlainStatic, max_num_seqs=6, max_model_len=128)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedModel:
    folder = make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return load_model(ModelConfig(model=str(folder), device="cpu")).model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedModel:
    folder: Path = make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")
    return load_model(ModelConfig(model=str(folder), device="cpu")).model


def runners(model: PreTrainedModel) -> tuple[ModelRunner, ModelRunner]:
    """With steps of fixed sizes, and without."""
    fixed, free = (
        ModelRunner(model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, execution=execution)
        for execution in (Execution(static=STATIC), Execution())
    )
    return fixed, free


def sequences(*lengths: int) -> list[Sequence]:
    """With room for four tokens more; tables that go down, one after the other."""
    free = list(range(NUM_BLOCKS))
    made = []
    for number, length in enumerate(lengths):
        tokens = [(31 * number + 7 * position + 3) % 256 for position in range(length)]
        table = [free.pop() for _ in range(-(-(length + 4) // BLOCK_SIZE))]
        sequence = Sequence(
            sequence_id=number,
            request_id=number,
            tokens=tokens,
            prompt_length=length,
            sampling=SamplingParams(max_tokens=8),
            hasher=PrefixHasher(b"", BLOCK_SIZE),
            block_table=table,
        )
        made.append(sequence)
    return made


def last(*batch: Sequence) -> list[ScheduledSequence]:
    return [ScheduledSequence(sequence, len(sequence.tokens) - 1, 1) for sequence in batch]


def prefill(runner: ModelRunner, batch: list[Sequence]) -> None:
    rows = [ScheduledSequence(sequence, 0, len(sequence.tokens) - 1) for sequence in batch]
    runner.forward_logits([row for row in rows if row.count])


def test_padded_steps_give_the_logits_of_steps_without_padding(model: PreTrainedModel) -> None:
    fixed, free = runners(model)
    batch = sequences(40, 4, 5, 1, 27)
    for runner in (fixed, free):
        prefill(runner, batch)
    # Five rows in a step of six; then fewer, in another order; then one; blocks open on the way.
    for rows in (batch, batch[3:1:-1], batch[:1], batch[1:4]):
        got, expected = (runner.forward_logits(last(*rows)) for runner in (fixed, free))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        for sequence, token_id in zip(rows, expected.argmax(-1).tolist(), strict=True):
            sequence.tokens.append(token_id)


def test_padding_touches_no_block_of_the_pool(llama: PreTrainedModel) -> None:
    fixed, _ = runners(llama)
    batch = sequences(9, 6, 11)
    prefill(fixed, batch)
    before = [layer.clone() for layer in fixed.cache.layers]
    fixed.forward_logits(last(*batch))
    own = {sequence.block_table[(len(sequence.tokens) - 1) // BLOCK_SIZE] for sequence in batch}
    for old, new in zip(before, fixed.cache.layers, strict=True):
        changed = (old != new).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
        assert set(changed) == own | {NUM_BLOCKS}, "the scratch block comes after the pool's"


def test_rows_that_do_not_sample_have_no_logits(llama: PreTrainedModel) -> None:
    fixed, free = runners(llama)
    batch = sequences(9, 6, 11)
    for runner in (fixed, free):
        prefill(runner, batch)
    rows = last(*batch)
    batch[1].tokens.append(5)  # the row is a chunk of one token now, with another to come
    got, expected = (runner.forward_logits(rows) for runner in (fixed, free))
    assert got.shape[0] == 2
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    only = last(batch[0])
    batch[0].tokens.append(5)
    assert fixed.forward_logits(only).shape[0] == 0


def test_forks_draw_from_the_line_of_their_leader(llama: PreTrainedModel) -> None:
    fixed, free = runners(llama)
    leader, fork, other = sequences(9, 9, 6)
    fork.tokens, fork.block_table = list(leader.tokens), []
    for runner in (fixed, free):
        prefill(runner, [leader, other])
    plan = StepPlan.of([*last(leader), ScheduledSequence(fork, 9, 0), *last(other)])
    tokens = fixed.execute(plan)
    assert tokens == free.execute(plan)
    assert tokens[0] == tokens[1] != tokens[2]


@pytest.mark.parametrize("stored", [None, FP8], ids=["plain", "fp8"])
def test_blocks_that_were_on_the_host_read_as_before(
    llama: PreTrainedModel, stored: torch.dtype | None
) -> None:
    execution = Execution(static=STATIC, stored=stored)
    runner = ModelRunner(llama, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, execution=execution)
    space = SwapSpace(runner.cache, 8)
    batch = sequences(9, 11)
    prefill(runner, batch)
    expected = runner.forward_logits(last(*batch))
    table = batch[1].block_table
    on_host = [5, 6, 2, 7][: len(table)]
    space.swap_out(table, on_host)
    for block in table:
        runner.cache.clear(block)
    batch[1].block_table = list(range(len(table)))  # others than before
    assert not torch.equal(runner.forward_logits(last(*batch)), expected)
    space.swap_in(on_host, batch[1].block_table)
    assert torch.equal(runner.forward_logits(last(*batch)), expected)


def test_only_steps_of_single_tokens_that_fit_are_padded(llama: PreTrainedModel) -> None:
    fixed, _ = runners(llama)
    steps = fixed._static
    assert steps is not None
    batch = sequences(5, 5, 5, 5, 5, 5, 5)
    assert steps.logits(last(*batch)) is None, "seven rows, and six at most"
    assert steps.logits([*last(*batch[:2]), ScheduledSequence(batch[2], 0, 5)]) is None
    assert steps.logits(last(*batch[:6])) is not None


@pytest.mark.parametrize(
    ("max_num_seqs", "buckets"),
    [(1, [1]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16, 32, 64])],
)
def test_buckets(max_num_seqs: int, buckets: list[int]) -> None:
    settings = StaticDecoding(attention=PlainStatic, max_num_seqs=max_num_seqs, max_model_len=128)
    assert settings.buckets == buckets


def test_a_model_that_cannot_be_captured_runs_without_graphs(
    llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fixed, free = runners(llama)
    streams: list[object] = []
    tried: list[int] = []

    def capture(step: graphs._DecodeStep, *_: object) -> None:
        tried.append(step._inputs.num_rows)
        if len(tried) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        step._replay = lambda: pytest.fail("a graph that has been dropped was replayed")

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "side")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "outer")
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    monkeypatch.setattr(graphs._DecodeStep, "capture", capture)
    steps = fixed._static
    with caplog.at_level(logging.WARNING, logger="kvscope_engine.model.graphs"):
        assert not fixed.capture_graphs()
    assert tried == [6, 4], "the largest first"
    assert streams == ["outer"], "torch leaves a failed capture on its own stream"
    (line,) = caplog.messages
    assert line.endswith("operation not permitted when stream is capturing")
    assert fixed._static is None
    batch = sequences(7, 3, 9, 5, 6, 8)
    for runner in (fixed, free):
        prefill(runner, batch)
    got, expected = (runner.forward_logits(last(*batch)) for runner in (fixed, free))
    torch.testing.assert_close(got, expected, atol=0, rtol=0)
    assert steps is not None
    assert steps.logits(last(*batch)) is not None, "and nothing replays what was captured"
