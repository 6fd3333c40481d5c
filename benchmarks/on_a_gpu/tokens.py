"""The kernels' own checks, compiled for this device, and logits held to plain transformers'.

Greedy tokens of 16-bit models differ wherever two are equally likely up to rounding. So those
positions count whose likeliest token is ahead of the next by many times what plain transformers
errs there: there, the token has to be the same.
"""

import os
import subprocess
import sys
from copy import deepcopy
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, PreTrainedModel
from transformers.models.auto import AutoModelForCausalLM

from benchmarks.on_a_gpu.report import Figure
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.choice import choose_attention
from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.graphs import StaticDecoding
from kvscope_engine.model.kv_cache import FP8
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence

CHECKS = (
    *("triton/attention_checks.py", "triton/decoder_checks.py", "triton/token_checks.py"),
    *("triton/engine_checks.py", "test_swap_space.py"),
)
"""Attention by its definition, a layer's other kernels, tokens of plain transformers, the engine
with forks, preemption and swap, and blocks copied to the host and back."""
DEVICE = torch.device("cuda")
CONFIG = LlamaConfig(
    vocab_size=8192,
    hidden_size=1024,
    intermediate_size=2048,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=128,
    max_position_embeddings=4096,
    initializer_range=0.1,
)
BLOCK_SIZES = (16, 32, 64, 128)
LENGTHS = (3, 64, 129, 700, 1500)
"""Prompts, in tokens."""
OUTPUT = 24
CHUNK = 500
DECIDED = 8.0
"""Times the errors' root mean square. A lead differs between two models that err as much by twice
that, so these are four standard deviations."""
ERROR_TARGET = 1.25
"""Over the error of plain transformers in the same type, both against float32."""


class Compared(NamedTuple):
    """One configuration against plain transformers."""

    decided: int
    """Positions where the likeliest token does not hang on rounding."""
    same: int
    """Those of the decided positions with the same token."""
    positions: int
    error: float
    """The logits' own, over that of plain transformers."""


def figures(out: Path) -> list[Figure]:
    found = [_checks(out)]
    for dtype, stored in product((torch.float16, torch.bfloat16), (None, FP8)):
        found += _compared(dtype, stored)
    return found


def _checks(out: Path) -> Figure:
    """1 where all pass."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "12"]
    # Beside xdist the benchmark plugin warns, and here warnings are errors.
    command += ["-p", "no:benchmark", *(f"tests/engine/model/{file}" for file in CHECKS)]
    with (out / "checks.txt").open("w") as log:
        ended = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    return Figure(
        "the kernels' own checks, compiled", float(ended.returncode == 0), "", 1, "higher"
    )


class RoundedCache(DynamicCache):
    """transformers' cache, with K and V rounded to fp8 as ours stores them."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *rest: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = (states.to(FP8).to(states.dtype) for states in (key_states, value_states))
        return super().update(keys, values, layer_idx, *rest, **named)


def _compared(dtype: torch.dtype, stored: torch.dtype | None) -> list[Figure]:
    torch.manual_seed(0)
    with DEVICE:
        model, exact = (
            AutoModelForCausalLM.from_config(deepcopy(CONFIG), dtype=chosen)  # type: ignore[no-untyped-call]
            for chosen in (dtype, torch.float32)
        )
    exact.load_state_dict(model.state_dict())
    random = Random(1)
    texts = [
        [random.randrange(CONFIG.vocab_size) for _ in range(length + OUTPUT)] for length in LENGTHS
    ]
    rounded = stored is not None
    plain = [plain_logits(model, text, rounded) for text in texts]
    true = [plain_logits(exact, text, rounded) for text in texts]
    del exact
    model.set_attn_implementation(IMPLEMENTATION)
    runs = {
        (size, graphs): compare(our_logits(model, texts, size, stored, graphs), plain, true)
        for size, graphs in product(BLOCK_SIZES, (True, False))
    }
    named = f"{str(dtype).removeprefix('torch.')}, {'fp8' if rounded else 'the same'} KV"
    total = [sum(column) for column in zip(*runs.values(), strict=True)]
    for (size, graphs), run in runs.items():
        print(f"{named}, blocks of {size}, graphs {'on' if graphs else 'off'}: {run}")
    where = f"{named}, blocks of 16 to 128, graphs on and off"
    found = [
        Figure(
            f"largest error of logits over plain transformers', {where}",
            *(max(run.error for run in runs.values()), "", ERROR_TARGET),
        )
    ]
    if total[0]:
        same = f"same token where decided ({total[0]} of {total[2]}), {where}"
        found.append(Figure(same, total[1] / total[0], "", 1, "higher"))
    return found


@torch.inference_mode()
def plain_logits(model: PreTrainedModel, text: list[int], rounded: bool) -> Tensor:
    """(OUTPUT + 1, V) float32: after the prompt and each token that follows but the last."""
    cache = RoundedCache() if rounded else DynamicCache()
    ids = torch.tensor([text], device=DEVICE)
    logits: Tensor = model(ids, past_key_values=cache, logits_to_keep=OUTPUT + 1).logits
    return logits[0, :OUTPUT].float()


def our_logits(
    model: PreTrainedModel,
    texts: list[list[int]],
    block_size: int,
    stored: torch.dtype | None,
    graphs: bool,
) -> list[Tensor]:
    """The same of the engine's runner: prompts in chunks, then one token a step, beside each
    other."""
    triton = choose_attention("triton", DEVICE, fp8=stored is not None)
    assert triton.prepare_static is not None
    static = StaticDecoding(
        attention=triton.prepare_static, max_num_seqs=len(texts), max_model_len=2048
    )
    execution = Execution(attention=triton.prepare, stored=stored, static=static, kernels=True)
    if not graphs:
        execution = execution.without_static()
    sizes = [-(-len(text) // block_size) for text in texts]
    ids = list(range(sum(sizes)))
    Random(block_size).shuffle(ids)
    runner = ModelRunner(model, num_blocks=len(ids), block_size=block_size, execution=execution)
    if graphs:
        assert runner.capture_graphs(), "the steps were not captured"
    sequences = [
        Sequence(
            sequence_id=number,
            request_id=number,
            tokens=text[:-OUTPUT],
            prompt_length=len(text) - OUTPUT,
            sampling=SamplingParams(max_tokens=OUTPUT),
            hasher=PrefixHasher(b"", block_size),
            block_table=[ids.pop() for _ in range(size)],
        )
        for number, (text, size) in enumerate(zip(texts, sizes, strict=True))
    ]
    found: list[list[Tensor]] = [[] for _ in texts]
    for sequence in sequences:
        for start in range(0, sequence.prompt_length, CHUNK):
            count = min(CHUNK, sequence.prompt_length - start)
            logits = runner.forward_logits([ScheduledSequence(sequence, start, count)])
        found[sequence.sequence_id].append(logits[0].clone())
    for step in range(OUTPUT - 1):
        for sequence, text in zip(sequences, texts, strict=True):
            sequence.tokens.append(text[len(text) - OUTPUT + step])
        rows = [ScheduledSequence(s, len(s.tokens) - 1, 1) for s in sequences]
        for row, logits in zip(found, runner.forward_logits(rows), strict=True):
            row.append(logits.clone())
        torch.cuda.synchronize()  # as sampling does: the next step overwrites this one's inputs
    return [torch.stack(rows) for rows in found]


def compare(ours: list[Tensor], plain: list[Tensor], true: list[Tensor]) -> Compared:
    our, theirs, exact = (torch.cat(logits) for logits in (ours, plain, true))
    errs = (theirs - exact).square().mean(1).sqrt()
    best = theirs.topk(2, dim=1)
    decided = best.values[:, 0] - best.values[:, 1] > DECIDED * errs
    same = our.argmax(1) == best.indices[:, 0]
    error = ((our - exact).norm() / (theirs - exact).norm()).item()
    return Compared(int(decided.sum()), int((same & decided).sum()), len(our), error)
