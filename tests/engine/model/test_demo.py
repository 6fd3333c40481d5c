"""The demo model: the same everywhere, from nothing but a seed."""

import torch

from kvscope_engine.config import ModelConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.torch_backend import TorchAttention
from kvscope_engine.model.demo import demo_model
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.limits import max_model_len
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence, StepPlan

CPU = torch.device("cpu")


def test_the_same_seed_gives_the_same_weights_and_leaves_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, same, other = (demo_model(seed, torch.float32, CPU) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [model.get_input_embeddings().weight for model in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_it_loads_by_name_and_fits_its_tokenizer() -> None:
    loaded = load_model(ModelConfig(device="cpu"))
    runner = ModelRunner(loaded.model, num_blocks=2, block_size=16)
    assert max_model_len(loaded.model.config) == 4096
    assert runner.vocab_size == 259
    assert runner.layout.bytes_per_block == 4 * 2 * 16 * 2 * 32 * 4
    assert loaded.tokenizer.chat_template


def test_a_runner_computes_attention_with_the_backend_that_it_is_given() -> None:
    prepared: list[int] = []

    def backend(batch: StepBatch, cache: KVCache) -> TorchAttention:
        prepared.append(len(batch.token_ids))
        return TorchAttention(batch, cache)

    model = demo_model(0, torch.float32, CPU)
    runner = ModelRunner(model, num_blocks=2, block_size=16, execution=Execution(attention=backend))
    sequence = Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[1, 2, 3],
        prompt_length=3,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", 16),
        block_table=[1],
    )
    runner.execute(StepPlan([ScheduledSequence(sequence, 0, 3)]))
    assert prepared == [3]
