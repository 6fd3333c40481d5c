"""Greedy tokens with the kernels equal plain transformers', one model per kind of attention.

`test_triton.py` runs this file.
"""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.choice import choose_attention
from kvscope_engine.model.execution import execution_of
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence, StepPlan
from tests.support.checkpoints import make_checkpoint

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCK_SIZE = 8
NUM_BLOCKS = 40
OUTPUT_TOKENS = 8
LENGTHS = (3, 40, 27)
"""Prompts; the window is 24 tokens."""
CHUNK = 16

EAGER, STATIC = True, False
KINDS = {
    "full, one KV head a query head": ("llama", {"num_key_value_heads": 4}, STATIC),
    "full, grouped": ("qwen3", {}, EAGER),
    "full, grouped, static": ("qwen3", {}, STATIC),
    "with biases": ("qwen2", {}, STATIC),
    "sliding window": ("mistral", {}, EAGER),
    "sliding window, static": ("mistral", {}, STATIC),
    "sliding and full, softcapped": ("gemma2", {}, STATIC),
}

NIGHTLY = {"full, grouped", "sliding window, static", "sliding and full, softcapped"}


@pytest.mark.parametrize(
    ("architecture", "changes", "enforce_eager"),
    [
        pytest.param(*kind, id=name, marks=() if name in NIGHTLY else pytest.mark.weekly)
        for name, kind in KINDS.items()
    ],
)
def test_greedy_tokens_equal_plain_transformers(
    architecture: str, changes: dict[str, object], enforce_eager: bool, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path, architecture, num_hidden_layers=2, **changes)
    prompts = [
        [(97 * number + 31 * position + 5) % 256 for position in range(length)]
        for number, length in enumerate(LENGTHS)
    ]
    settings = ModelConfig(
        model=str(folder), device=DEVICE, attention_backend="triton", enforce_eager=enforce_eager
    )
    attention = choose_attention("triton", torch.device(DEVICE))
    model = load_model(settings, attention).model  # probed with the kernels as well
    config = EngineConfig(model=settings, cache=CacheConfig(block_size=BLOCK_SIZE))
    limits = SchedulerConfig(max_model_len=64, max_num_seqs=len(prompts))
    runner = ModelRunner(
        model,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        execution=execution_of(config, limits, attention),
    )
    if DEVICE == "cuda" and not enforce_eager:
        assert runner.capture_graphs()
    assert generate(runner, prompts) == plain(folder, prompts)


def generate(runner: ModelRunner, prompts: list[list[int]]) -> list[list[int]]:
    """In chunks, all sequences beside each other, each at its own pace."""
    free = list(range(NUM_BLOCKS))
    sequences = []
    for number, prompt in enumerate(prompts):
        blocks = -(-(len(prompt) + OUTPUT_TOKENS) // BLOCK_SIZE)
        sequences.append(
            Sequence(
                sequence_id=number,
                request_id=number,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=SamplingParams(max_tokens=OUTPUT_TOKENS),
                hasher=PrefixHasher(b"", BLOCK_SIZE),
                block_table=[free.pop(0 if block % 2 else -1) for block in range(blocks)],
            )
        )
    unfinished = list(sequences)
    while unfinished:
        rows = [
            ScheduledSequence(
                sequence,
                sequence.num_computed_tokens,
                min(CHUNK, len(sequence.tokens) - sequence.num_computed_tokens),
            )
            for sequence in unfinished
        ]
        for row, token in zip(rows, runner.execute(StepPlan(rows)), strict=True):
            row.sequence.num_computed_tokens += row.count
            if token is not None:
                row.sequence.tokens.append(token.token_id)
        unfinished = [s for s in unfinished if s.num_output_tokens < OUTPUT_TOKENS]
    return [sequence.tokens[sequence.prompt_length :] for sequence in sequences]


def plain(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",  # some releases' sdpa forgets Gemma 2's softcapping
    ).to(DEVICE)
    outputs = []
    with torch.inference_mode():
        for prompt in prompts:
            tokens = list(prompt)
            for _ in range(OUTPUT_TOKENS):
                logits = model(torch.tensor([tokens], device=DEVICE), use_cache=False).logits
                tokens.append(int(logits[0, -1].argmax()))
            outputs.append(tokens[len(prompt) :])
    return outputs
