"""The short way through a model: logits as by transformers' layers, from the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.forward import forward_of
from kvscope_engine.model.memory_report import parameter_bytes
from kvscope_engine.model.plain_decoder import plain_decoder
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence
from tests.support.checkpoints import make_config

PLAIN = ("llama", "mistral", "qwen2", "qwen3")
LENGTHS = (60, 9, 1)


def make_model(architecture: str, dtype: torch.dtype = torch.float32, **changes: object) -> Any:
    """All parameters random: transformers starts biases at 0 and norms at 1."""
    config = make_config(architecture, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=IMPLEMENTATION
        ).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.data.uniform_(0.5, 1.5)
    return model


def logits_of(model: PreTrainedModel) -> Tensor:
    """(6, V): each sequence up to its middle, then token by token."""
    runner = ModelRunner(model, num_blocks=16, block_size=8)
    free = list(range(16))
    sequences = [
        Sequence(
            sequence_id=length,
            request_id=length,
            tokens=[(7 * position + length) % 256 for position in range(length + 2)],
            prompt_length=length,
            sampling=SamplingParams(max_tokens=2),
            hasher=PrefixHasher(b"", 8),
            block_table=[free.pop() for _ in range(-(-(length + 2) // 8))],
        )
        for length in LENGTHS
    ]
    bounds = [(0, length, length + 1, length + 2) for length in LENGTHS]
    steps = [
        runner.forward_logits(
            [
                ScheduledSequence(sequence, bound[step], bound[step + 1] - bound[step])
                for sequence, bound in zip(sequences, bounds, strict=True)
            ]
        )
        for step in range(3)
    ]
    return torch.cat(steps[1:])


@pytest.mark.parametrize("architecture", PLAIN)
def test_logits_equal_those_of_transformers_layers(
    monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    model = make_model(architecture)
    with monkeypatch.context() as patched:
        patched.setattr("kvscope_engine.model.forward.plain_decoder", lambda model, kernels: None)
        expected = logits_of(model)
    assert plain_decoder(model) is not None
    torch.testing.assert_close(logits_of(model), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("architecture", PLAIN)
def test_the_model_keeps_its_weights_and_takes_no_more_memory(architecture: str) -> None:
    model = make_model(architecture)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    size = parameter_bytes(model)
    forward_of(model)
    assert parameter_bytes(model) == size
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    forward_of(model)  # a model that is already prepared is left alone
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
    after = model.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("gemma2", {}),
        ("gemma3", {}),
        ("qwen3_moe", {}),
        ("llama", {"attention_bias": True}),
        ("llama", {"mlp_bias": True}),
        ("llama", {"dtype": torch.bfloat16}),
    ],
)
def test_others_go_through_transformers(architecture: str, changes: dict[str, Any]) -> None:
    model = make_model(architecture, **changes)
    assert plain_decoder(model) is None
    assert logits_of(model).isfinite().all()


def test_layers_of_a_class_of_their_own_are_not_taken_for_plain_ones() -> None:
    class Quantized(torch.nn.Linear):
        """A layer whose product is not that of its weights."""

    model = make_model("llama")
    model.model.layers[2].mlp.up_proj.__class__ = Quantized
    assert plain_decoder(model) is None
