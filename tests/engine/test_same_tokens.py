"""Greedy output of the whole engine equals plain transformers, token for token, in float32.

32 mixed prompts at once, with and without prefix cache, with chunked and whole prefill, and in a
pool so small that requests are preempted, and recomputed or swapped to the host and back.
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch
from transformers.models.auto import AutoModelForCausalLM

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import AttentionName, ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.model.loader import LoadedModel, device_of, load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.model.swap_space import SwapSpace
from kvscope_engine.request import Request, SamplingParams, Sequence, SequenceState
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.swap.host_pool import HostPool
from kvscope_engine.swap.manager import SwapManager
from kvscope_events.bus import EventBus
from kvscope_events.events import (
    EngineEvent,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
)
from kvscope_exporter.state import Ledger
from tests.support.checkpoints import ARCHITECTURES, make_checkpoint
from tests.support.pool_state import pool_state
from tests.support.served import served_execution

BLOCK_SIZE = 16
MAX_MODEL_LEN = 192
NUM_REQUESTS = 32
OUTPUT_TOKENS = 32
VOCABULARY = 256
AMPLE_BLOCKS = 512
TIGHT_BLOCKS = 24
"""Two sequences of full length; 32 want in."""

SCARCE_HOST_BLOCKS = 6
"""Some victims fit, others do not."""


@dataclass(frozen=True)
class Oracle:
    """A checkpoint, and what plain transformers makes of the prompts."""

    loaded: LoadedModel
    prompts: list[list[int]]
    outputs: list[list[int]]


@cache
def oracle(folder: Path) -> Oracle:
    return oracle_of(folder, mixed_prompts(), OUTPUT_TOKENS)


def oracle_of(folder: Path, prompts: list[list[int]], output_tokens: int) -> Oracle:
    config = ModelConfig(model=str(folder))
    device = device_of(config)
    plain = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",  # some releases' sdpa forgets Gemma 2's softcapping
    )
    plain.to(device).train(False)
    outputs = []
    with torch.inference_mode():
        for prompt in prompts:
            generated = plain.generate(
                torch.tensor([prompt], device=device),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=device),
                max_new_tokens=output_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=258,
            )
            outputs.append(generated[0, len(prompt) :].tolist())
    return Oracle(load_model(config), prompts, outputs)


WEEKLY = (pytest.mark.nightly, pytest.mark.weekly)
MARKS = {"llama": (), "gemma3": (pytest.mark.nightly,)}
"""The others run weekly, and differ from these in what tests/engine/model/test_parity.py compares.
"""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=MARKS.get(name, WEEKLY)) for name in ARCHITECTURES],
)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / request.param
    return make_checkpoint(folder, request.param)


def mixed_prompts() -> list[list[int]]:
    """1 to 150 tokens; a third share a prefix, two are equal, some end on a block's edge."""
    random = Random(0)

    def tokens(count: int) -> list[int]:
        return [random.randrange(VOCABULARY) for _ in range(count)]

    shared = tokens(5 * BLOCK_SIZE)
    prompts = [shared + tokens(random.randrange(1, 40)) for _ in range(10)]
    prompts += [tokens(count) for count in (1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 80, 150)]
    prompts += [tokens(random.randrange(3, 120)) for _ in range(NUM_REQUESTS - len(prompts) - 1)]
    prompts.append(prompts[-1])
    assert len(prompts) == NUM_REQUESTS
    return prompts


def generate(
    oracle: Oracle,
    *,
    num_blocks: int,
    caching: bool,
    chunked: bool,
    swap_blocks: int = 0,
    backend: AttentionName = "auto",
) -> tuple[list[list[int]], list[EngineEvent]]:
    """All prompts at once through scheduler, manager, pool, swap pool and model."""
    bus, ledger = EventBus(), Ledger()
    subscription = bus.subscribe()
    pool = BlockPool(num_blocks, BLOCK_SIZE, bus, swap_blocks=swap_blocks)
    model = oracle.loaded.model
    runner = ModelRunner(
        model,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        execution=served_execution(model.device, backend),
    )
    swap: SwapManager | None = None
    if swap_blocks:
        space = SwapSpace(runner.cache, swap_blocks)
        swap = SwapManager(pool, HostPool(swap_blocks), space, bus)
    scheduler = Scheduler(
        SchedulerConfig(
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=NUM_REQUESTS,
            max_num_batched_tokens=48 if chunked else 256,
            enable_chunked_prefill=chunked,
        ),
        KVManager(pool, bus, enable_prefix_caching=caching),
        bus,
        frozenset(),
        swap,
    )
    sequences = []
    for number, (prompt, output) in enumerate(zip(oracle.prompts, oracle.outputs, strict=True)):
        hasher = PrefixHasher(chain_seed("m"), BLOCK_SIZE)
        sampling = SamplingParams(max_tokens=len(output))
        arrival = time.monotonic_ns()
        sequence = Sequence(number, number, list(prompt), len(prompt), sampling, hasher)
        scheduler.add(Request(request_id=number, sequences=[sequence], arrival_ns=arrival))
        sequences.append(sequence)
    events: list[EngineEvent] = []
    while any(s.state is not SequenceState.FINISHED for s in sequences):
        plan = scheduler.schedule()
        assert plan.rows, "work, but nothing was scheduled"
        sampled = runner.execute(plan)
        scheduler.update(plan, [None if s is None else s.token_id for s in sampled])
        bus.flush()
        if (taken := subscription.take()) is not None:
            batch, _ = taken
            ledger.on_batch(batch)
            events += batch.events
        assert ledger.state() == pool_state(pool, swap)
    assert swap is None or swap.host.num_used == 0
    return [s.tokens[s.prompt_length :] for s in sequences], events


def every_combination(sizes: Mapping[str, int]) -> list[object]:
    """Half of them are weekly; the rest has each pair of values of two settings."""
    caching = {"cached": True, "uncached": False}
    chunked = {"chunked": True, "whole": False}
    return [
        pytest.param(
            *(
                setting[name]
                for setting, name in zip((caching, chunked, sizes), names, strict=True)
            ),
            id="-".join(names),
            marks=WEEKLY if sum(places) % 2 else (),
        )
        for names, places in zip(
            itertools.product(caching, chunked, sizes),
            itertools.product(range(2), repeat=3),
            strict=True,
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caching", "chunked", "num_blocks"),
    every_combination({"ample": AMPLE_BLOCKS, "tight": TIGHT_BLOCKS}),
)
def test_output_equals_plain_transformers(
    checkpoint: Path, num_blocks: int, chunked: bool, caching: bool
) -> None:
    expected = oracle(checkpoint)
    outputs, events = generate(expected, num_blocks=num_blocks, caching=caching, chunked=chunked)
    for number, (ours, theirs) in enumerate(zip(outputs, expected.outputs, strict=True)):
        assert ours == theirs, f"request {number} of {len(expected.prompts[number])} tokens"
    preempted = sum(isinstance(event, RequestPreempted) for event in events)
    assert (preempted > 0) == (num_blocks == TIGHT_BLOCKS)
    hits = sum(event.hit_blocks for event in events if isinstance(event, PrefixLookup))
    assert (hits > 0) == caching


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caching", "chunked", "swap_blocks"),
    every_combination({"scarce": SCARCE_HOST_BLOCKS, "room": AMPLE_BLOCKS}),
)
def test_output_of_swapped_requests_equals_plain_transformers(
    checkpoint: Path, swap_blocks: int, chunked: bool, caching: bool
) -> None:
    check_swapped(oracle(checkpoint), caching=caching, chunked=chunked, swap_blocks=swap_blocks)


@pytest.mark.slow
def test_plain_torch_gives_these_tokens_as_well(checkpoint: Path) -> None:
    """As where a CPU has no compiler."""
    check_swapped(
        oracle(checkpoint),
        caching=True,
        chunked=True,
        swap_blocks=SCARCE_HOST_BLOCKS,
        backend="torch",
    )


def check_swapped(
    expected: Oracle,
    *,
    caching: bool,
    chunked: bool,
    swap_blocks: int,
    num_blocks: int = TIGHT_BLOCKS,
    backend: AttentionName = "auto",
) -> None:
    outputs, events = generate(
        expected,
        num_blocks=num_blocks,
        caching=caching,
        chunked=chunked,
        swap_blocks=swap_blocks,
        backend=backend,
    )
    for number, (ours, theirs) in enumerate(zip(outputs, expected.outputs, strict=True)):
        assert ours == theirs, f"request {number} of {len(expected.prompts[number])} tokens"
    modes = {event.mode for event in events if isinstance(event, RequestPreempted)}
    assert modes == ({"swap"} if swap_blocks == AMPLE_BLOCKS else {"swap", "recompute"})
    assert sum(event.swapped_tokens for event in events if isinstance(event, RequestResumed)) > 0
