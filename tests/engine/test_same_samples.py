"""Samples that fork draw the tokens that plain transformers gives each of them, in float32.

Four samples a prompt, greedy, seeded and with everything that changes logits: the prompt's last
block full or not, the prompt in chunks, a pool so small that samples are preempted, and recomputed
or swapped to the host, samples that go while the others wait or run.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
from kvscope_engine.model.sampler import Sampler
from kvscope_engine.model.swap_space import SwapSpace
from kvscope_engine.request import Request, SamplingParams, Sequence, SequenceState
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.swap.host_pool import HostPool
from kvscope_engine.swap.manager import SwapManager
from kvscope_events.bus import EventBus
from kvscope_events.events import BlockCopied, BlocksShared, EngineEvent, RequestPreempted
from kvscope_exporter.state import Ledger
from tests.support.checkpoints import make_checkpoint
from tests.support.pool_state import pool_state
from tests.support.served import served_execution

BLOCK_SIZE = 16
SAMPLES = 4
OUTPUT_TOKENS = 24
LENGTHS = (1, 37, 48, 70)
"""Lengths of the prompts: the third ends with its last block, the others within it."""
GREEDY = SamplingParams(max_tokens=OUTPUT_TOKENS)
SEEDED = replace(GREEDY, temperature=1.2, top_p=0.95, top_k=40, seed=7)
CHANGED = replace(
    SEEDED,
    min_p=0.01,
    logit_bias=((3, 4.0), (90, 2.0), (200, -100.0)),
    presence_penalty=0.7,
    frequency_penalty=1.3,
    repetition_penalty=1.4,
)
"""Each sample is penalised for its own output."""
SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED, "changed": CHANGED}


@dataclass(frozen=True)
class Case:
    """Settings with which the samples are served."""

    num_blocks: int = 256
    max_num_seqs: int = SAMPLES * len(LENGTHS)
    budget: int = 256
    caching: bool = True
    swap_blocks: int = 0
    """Swap blocks of the host; 0: victims are recomputed."""
    leaving: dict[int, int] = field(default_factory=dict)
    """For each prompt the sample that is aborted, by the step before which that happens."""


CASES = {
    "ample": Case(),
    "uncached": Case(caching=False),
    "chunked": Case(budget=20),
    "tight": Case(num_blocks=12),
    "tight and chunked": Case(num_blocks=12, budget=20, caching=False),
    "tight, chunked and swapped": Case(num_blocks=12, budget=20, swap_blocks=64),
    "few places": Case(max_num_seqs=6),
    "one goes between fork and write": Case(leaving={1: 2}),
    "the first goes while it computes the prompt": Case(budget=20, leaving={1: 0}),
    "two go one after the other": Case(budget=20, leaving={3: 0, 7: 1}),
}


@dataclass(frozen=True)
class Reference:
    """A checkpoint, and what a plain forward pass over it makes of the prompts."""

    loaded: LoadedModel
    prompts: list[list[int]]
    outputs: dict[SamplingParams, list[list[list[int]]]]
    """By sampling, prompt and sample."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("llama", marks=(pytest.mark.nightly, pytest.mark.weekly)),
        pytest.param("gemma3", marks=pytest.mark.nightly),
    ],
)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "model", request.param)
    return reference_of(folder, LENGTHS, (GREEDY, SEEDED, CHANGED))


def reference_of(
    folder: Path, lengths: Iterable[int], samplings: Iterable[SamplingParams]
) -> Reference:
    config = ModelConfig(model=str(folder))
    plain = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    plain.to(device_of(config)).train(False)
    random = Random(0)
    prompts = [[random.randrange(256) for _ in range(length)] for length in lengths]
    outputs = {
        sampling: [
            [plain_sample(plain, prompt, sample_of(sampling, n)) for n in range(SAMPLES)]
            for prompt in prompts
        ]
        for sampling in samplings
    }
    return Reference(load_model(config), prompts, outputs)


def sample_of(sampling: SamplingParams, number: int) -> SamplingParams:
    """As the server gives each choice its seed."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + number)


def sequence_of(number: int, prompt: list[int], sampling: SamplingParams) -> Sequence:
    hasher = PrefixHasher(chain_seed("m"), BLOCK_SIZE)
    return Sequence(number, number // SAMPLES, list(prompt), len(prompt), sampling, hasher)


@torch.inference_mode()
def plain_sample(plain: torch.nn.Module, prompt: list[int], sampling: SamplingParams) -> list[int]:
    """One sample by itself, each token computed from all before it."""
    sequence, device = sequence_of(0, prompt, sampling), next(plain.parameters()).device
    for _ in range(sampling.max_tokens):
        logits = plain(torch.tensor([sequence.tokens], device=device)).logits[0, -1:].float()
        (token,) = Sampler(0).sample(logits, [sequence])
        sequence.tokens.append(token.token_id)
    return sequence.tokens[len(prompt) :]


def serve(
    reference: Reference,
    sampling: SamplingParams,
    case: Case,
    backend: AttentionName = "auto",
) -> tuple[list[list[Sequence]], list[EngineEvent]]:
    """All prompts at once, four samples each, to their end: by prompt and sample."""
    bus, ledger = EventBus(), Ledger()
    subscription = bus.subscribe()
    pool = BlockPool(case.num_blocks, BLOCK_SIZE, bus, swap_blocks=case.swap_blocks)
    model = reference.loaded.model
    runner = ModelRunner(
        model,
        num_blocks=case.num_blocks,
        block_size=BLOCK_SIZE,
        execution=served_execution(model.device, backend),
    )
    kv = KVManager(pool, bus, enable_prefix_caching=case.caching, copier=runner.cache)
    config = SchedulerConfig(
        max_model_len=128, max_num_seqs=case.max_num_seqs, max_num_batched_tokens=case.budget
    )
    swap: SwapManager | None = None
    if case.swap_blocks:
        space = SwapSpace(runner.cache, case.swap_blocks)
        swap = SwapManager(pool, HostPool(case.swap_blocks), space, bus)
    scheduler = Scheduler(config, kv, bus, frozenset(), swap)
    calls = []
    for number, prompt in enumerate(reference.prompts):
        sequences = [
            sequence_of(SAMPLES * number + n, prompt, sample_of(sampling, n))
            for n in range(SAMPLES)
        ]
        calls.append(sequences)
        scheduler.add(
            Request(
                request_id=number,
                sequences=sequences,
                arrival_ns=time.monotonic_ns(),
                choices_per_prompt=SAMPLES,
            )
        )
    events: list[EngineEvent] = []
    steps = 0
    while any(s.state is not SequenceState.FINISHED for samples in calls for s in samples):
        if steps in case.leaving:
            for samples in calls:
                if samples[case.leaving[steps]].state is not SequenceState.FINISHED:
                    scheduler.finish(samples[case.leaving[steps]], "abort")
        plan = scheduler.schedule()
        assert plan.rows, "work, but nothing was scheduled"
        sampled = runner.execute(plan)
        scheduler.update(plan, [None if s is None else s.token_id for s in sampled])
        steps += 1
        bus.flush()
        if (taken := subscription.take()) is not None:
            batch, _ = taken
            ledger.on_batch(batch)
            events += batch.events
        assert ledger.state() == pool_state(pool, swap)
    assert pool.num_active == scheduler.num_unfilled_slots == 0
    return calls, events


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("name", CASES)
def test_samples_equal_plain_transformers(reference: Reference, kind: str, name: str) -> None:
    case, sampling = CASES[name], SAMPLINGS[kind]
    calls, events = serve(reference, sampling, case)
    assert_equal(calls, reference.outputs[sampling])
    forks = [e for e in events if isinstance(e, BlocksShared) and e.cause == "fork"]
    copies = [e for e in events if isinstance(e, BlockCopied)]
    assert len(forks) > len(LENGTHS)
    assert len(copies) > 2, "the last blocks of three prompts are filled in part"
    modes = {e.mode for e in events if isinstance(e, RequestPreempted)}
    assert bool(modes) == ("tight" in name)
    assert ("swap" in modes) == bool(case.swap_blocks)


def assert_equal(calls: list[list[Sequence]], outputs: list[list[list[int]]]) -> None:
    """Compare; for a sample that went away, as far as it came."""
    for samples, expected in zip(calls, outputs, strict=True):
        for sequence, theirs in zip(samples, expected, strict=True):
            ours = sequence.tokens[sequence.prompt_length :]
            gone = sequence.finish_reason == "abort"
            assert ours == (theirs[: len(ours)] if gone else theirs), f"{sequence.sequence_id}"


@pytest.mark.slow
def test_seeded_samples_of_one_prompt_differ(reference: Reference) -> None:
    for sampling in (SEEDED, CHANGED):
        for samples in reference.outputs[sampling]:
            assert len({*map(tuple, samples)}) == SAMPLES


@pytest.mark.slow
def test_penalties_and_biases_change_every_sample(reference: Reference) -> None:
    for seeded, changed in zip(reference.outputs[SEEDED], reference.outputs[CHANGED], strict=True):
        for plain, adjusted in zip(seeded, changed, strict=True):
            assert plain != adjusted
            assert 200 not in adjusted
