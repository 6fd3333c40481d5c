"""A decode step of a model of 8 billion random weights: its time and its memory.

A step has to read every weight once. That time, at the bandwidth of a copy, is the yardstick.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.auto import AutoModelForCausalLM

from benchmarks.on_a_gpu.ceilings import Ceilings
from benchmarks.on_a_gpu.report import Figure
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.choice import TORCH, choose_attention
from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.device_memory import CudaMemory
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.graphs import StaticDecoding
from kvscope_engine.model.kv_cache import kv_layout
from kvscope_engine.model.memory_report import weight_bytes
from kvscope_engine.model.profile import graph_bytes, step_peaks
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence, StepPlan

DEVICE = torch.device("cuda")
BLOCK_SIZE = 16
CONTEXT = 1024
SEQUENCES = (1, 8, 32, 128)
STEPS = 60
PROMPT = 2048
"""Tokens of a step, as configured by default."""
MAX_MODEL_LEN = 8192
PEAK_SEQUENCES = 256
PEAK_POOL_TOKENS = 1 << 18
MIB = 2**20
TARGET_RATIO = 1.5
TARGET_AT = (1, 32)
TARGET_PEAK = 300

CONFIG = LlamaConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=MAX_MODEL_LEN,
    rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
)
"""The shape of Llama 3 8B."""


def figures(ceilings: Ceilings, out: Path) -> list[Figure]:
    """out: the folder for tables of the kernels' times."""
    model = random_model()
    embeddings = model.get_input_embeddings().weight
    assert isinstance(embeddings, torch.Tensor)
    weights = weight_bytes(model) - embeddings.nbytes  # a step reads a few rows of the embeddings
    read_seconds = weights / ceilings.copied
    found = [Figure("reading the 8B weights once", read_seconds * 1e3, "ms")]
    triton = choose_attention("triton", DEVICE)
    assert triton.prepare_static is not None
    static = StaticDecoding(
        attention=triton.prepare_static, max_num_seqs=max(SEQUENCES), max_model_len=MAX_MODEL_LEN
    )
    graphs = Execution(attention=triton.prepare, static=static, kernels=True)
    eager = graphs.without_static()
    plain = Execution(attention=TORCH.prepare)
    for count in SEQUENCES:
        named = f"8B decode step of {count} over reading the weights"
        table = out / f"decode-of-{count}.txt"
        seconds = step_seconds(model, graphs, count, table)
        target = TARGET_RATIO if count in TARGET_AT else None
        found.append(Figure(f"{named}, graphs", seconds / read_seconds, "", target))
        kv = count * CONTEXT * kv_layout(model.config, BLOCK_SIZE, model.dtype).bytes_per_token
        both = (weights + kv) / ceilings.copied
        found.append(Figure(f"{named} and K and V, graphs", seconds / both, ""))
        for name, execution in (("eager Triton", eager), ("plain torch", plain)):
            seconds = step_seconds(model, execution, count)
            found.append(Figure(f"{named}, {name}", seconds / read_seconds, ""))
    multiplied = 2 * PROMPT * (weights - embeddings.nbytes) / model.dtype.itemsize
    seconds = prompt_seconds(model, eager, out / "prefill.txt")
    share = multiplied / seconds / ceilings.multiplied
    found.append(Figure(f"8B prefill of {PROMPT} tokens over a matrix product", share, ""))
    return [*found, *memory_figures(model, graphs, plain)]


def memory_figures(model: PreTrainedModel, graphs: Execution, plain: Execution) -> list[Figure]:
    """The same figures as start-up measures: each batch's peak, and the graphs."""
    found = []
    memory = CudaMemory(DEVICE)
    limits = SchedulerConfig(
        max_model_len=MAX_MODEL_LEN, max_num_seqs=PEAK_SEQUENCES, max_num_batched_tokens=PROMPT
    )
    eager = graphs.without_static()
    for name, execution, target in (("Triton", eager, TARGET_PEAK), ("plain torch", plain, None)):
        peaks = step_peaks(
            model,
            memory,
            limits,
            block_size=BLOCK_SIZE,
            pool_tokens=PEAK_POOL_TOKENS,
            execution=execution,
        )
        for batch, peak in peaks.items():
            bound = target if batch == "decode" else None
            found.append(
                Figure(f"activation peak of the {batch} batch, {name}", peak / MIB, "MiB", bound)
            )
    taken = graph_bytes(model, memory, graphs, block_size=BLOCK_SIZE)
    assert taken is not None, "an 8B Llama was not captured"
    named = f"memory of the graphs, up to {max(SEQUENCES)} sequences"
    return [*found, Figure(named, taken / MIB, "MiB")]


def random_model() -> PreTrainedModel:
    """In bfloat16, on the device."""
    with DEVICE:
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            CONFIG, dtype=torch.bfloat16, attn_implementation=IMPLEMENTATION
        )
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    return model


def step_seconds(
    model: PreTrainedModel, execution: Execution, count: int, table: Path | None = None
) -> float:
    """Wall time of one step, sampling included, while the sequences grow; the median.

    table: the file for the kernels' times in the last step.
    """
    blocks = -(-(CONTEXT + STEPS + 1) // BLOCK_SIZE)
    runner = ModelRunner(
        model, num_blocks=count * blocks, block_size=BLOCK_SIZE, execution=execution
    )
    if execution.static is not None:
        assert runner.capture_graphs(), "an 8B Llama was not captured"
    sequences = [
        Sequence(
            sequence_id=number,
            request_id=number,
            tokens=[1] * (CONTEXT + 1),  # what was never written is zero: as fast as any other
            prompt_length=CONTEXT,
            sampling=SamplingParams(max_tokens=STEPS),
            hasher=PrefixHasher(b"", BLOCK_SIZE),
            block_table=list(range(number * blocks, (number + 1) * blocks)),
        )
        for number in range(count)
    ]

    def step() -> float:
        begin = time.perf_counter()
        plan = StepPlan([ScheduledSequence(s, len(s.tokens) - 1, 1) for s in sequences])
        tokens = runner.execute(plan)  # waits for the device: the tokens are on the host
        seconds = time.perf_counter() - begin
        for sequence, token in zip(sequences, tokens, strict=True):
            assert token is not None
            sequence.tokens.append(token.token_id)
        return seconds

    seconds = [step() for _ in range(STEPS - 1)]
    if table is not None:
        write_kernels(step, table)
    return median(seconds[STEPS // 6 :])


def prompt_seconds(model: PreTrainedModel, execution: Execution, table: Path) -> float:
    """Wall time of one prompt that fills a step; the median."""
    blocks = PROMPT // BLOCK_SIZE
    runner = ModelRunner(model, num_blocks=blocks, block_size=BLOCK_SIZE, execution=execution)
    sequence = Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[1] * PROMPT,
        prompt_length=PROMPT,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", BLOCK_SIZE),
        block_table=list(range(blocks)),
    )

    def step() -> float:
        begin = time.perf_counter()
        runner.execute(StepPlan([ScheduledSequence(sequence, 0, PROMPT)]))
        return time.perf_counter() - begin

    seconds = [step() for _ in range(12)]
    write_kernels(step, table)
    return median(seconds[2:])


def write_kernels(step: Callable[[], object], table: Path) -> None:
    """The time that one step spends in each kernel, and before and between them."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        step()
        torch.cuda.synchronize()
    averages = profiled.key_averages()
    table.write_text(averages.table(sort_by="cuda_time_total", row_limit=30))
