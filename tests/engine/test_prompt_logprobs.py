"""Log probabilities of a prompt's tokens: those of plain transformers, each reported once."""

import time
from functools import cache
from random import Random

import pytest
import torch
from torch import Tensor

from engine.block_pool import BlockPool
from engine.config import ModelConfig, SchedulerConfig
from engine.hashing import PrefixHasher, chain_seed
from engine.kv_manager import KVManager
from engine.model.demo import demo_model
from engine.model.loader import LoadedModel, load_model
from engine.model.runner import ModelRunner
from engine.model.swap_space import SwapSpace
from engine.request import Request, SamplingParams, Sequence, SequenceState
from engine.scheduler import MAX_SCORED, Scheduler
from engine.step import Step
from engine.step_plan import SampledToken, StepPlan
from engine.swap.host_pool import HostPool
from engine.swap.manager import SwapManager
from exporter.fold import Ledger
from kvscope_events.bus import EventBus
from kvscope_events.events import BlocksShared, EngineEvent, PrefixLookup, RequestPreempted
from tests.support.pool_state import pool_state
from tests.support.served import served_execution

BLOCK_SIZE = 16


@cache
def loaded() -> LoadedModel:
    return load_model(ModelConfig(model="demo", device="cpu"))


@cache
def plain_logprobs(tokens: tuple[int, ...]) -> Tensor:
    """(T, V): row i for the token after i, by transformers alone."""
    with torch.inference_mode():
        plain = demo_model(0, torch.float32, torch.device("cpu"))
        plain.set_attn_implementation("eager")
        logits = plain(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        return logits.float().log_softmax(-1)


class Run:
    """Scheduler, pool and model, step by step, with all that comes out."""

    def __init__(
        self, num_blocks: int, *, chunked: bool = True, budget: int = 48, swap_blocks: int = 0
    ) -> None:
        bus = EventBus()
        self.subscription, self.ledger = bus.subscribe(), Ledger()
        self.pool = BlockPool(num_blocks, BLOCK_SIZE, bus, swap_blocks=swap_blocks)
        config = SchedulerConfig(
            max_model_len=1024,
            max_num_seqs=min(8, budget),
            max_num_batched_tokens=budget if chunked else 1024,
            enable_chunked_prefill=chunked,
        )
        self.bus = bus
        model = loaded().model
        self.runner = ModelRunner(
            model,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            execution=served_execution(model.device),
        )
        kv = KVManager(self.pool, bus, copier=self.runner.cache)
        self.swap: SwapManager | None = None
        if swap_blocks:
            space = SwapSpace(self.runner.cache, swap_blocks)
            self.swap = SwapManager(self.pool, HostPool(swap_blocks), space, bus)
        self.scheduler = Scheduler(config, kv, bus, frozenset(), self.swap)
        self.step = Step(self.scheduler, self.pool, self, bus)
        self.sequences: list[Sequence] = []
        self.scored: dict[int, list[SampledToken]] = {}
        self.plans: list[int] = []
        self.events: list[EngineEvent] = []

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        self.plans.append(plan.num_scored)
        return self.runner.execute(plan)

    def add(self, prompt: list[int], scored: int | None, max_tokens: int = 8) -> Sequence:
        return self.call(prompt, scored, max_tokens, 1)[0]

    def call(
        self, prompt: list[int], scored: int | None, max_tokens: int, n: int
    ) -> list[Sequence]:
        """Samples of one prompt, of which the first scores it."""
        number = len(self.sequences)
        samples = [
            Sequence(
                sequence_id=number + sample,
                request_id=number,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=SamplingParams(
                    max_tokens=max_tokens,
                    temperature=0.0 if n == 1 else 1.0,
                    seed=sample,
                    prompt_logprobs=None if sample else scored,
                ),
                hasher=PrefixHasher(chain_seed("m"), BLOCK_SIZE),
            )
            for sample in range(n)
        ]
        self.scheduler.add(
            Request(
                request_id=number,
                sequences=samples,
                arrival_ns=time.monotonic_ns(),
                choices_per_prompt=n,
            )
        )
        self.sequences += samples
        return samples

    def finish(self) -> None:
        while any(sequence.state is not SequenceState.FINISHED for sequence in self.sequences):
            outputs = self.step.run()
            assert outputs is not None
            for output in outputs:
                self.scored.setdefault(output.sequence_id, []).extend(output.prompt_tokens or [])
            self.bus.flush()
            while (taken := self.subscription.take()) is not None:
                self.ledger.on_batch(taken[0])
                self.events += taken[0].events
            assert self.ledger.state() == pool_state(self.pool, self.swap)

    def check(self, sequence: Sequence) -> None:
        """Every token but the first, once, in order, as transformers has it."""
        scored, prompt = self.scored[sequence.sequence_id], sequence.prompt
        assert [token.token_id for token in scored] == prompt[1:]
        expected = plain_logprobs(tuple(prompt))
        for position, token in enumerate(scored):
            assert token.logprob == pytest.approx(
                float(expected[position, token.token_id]), abs=1e-3
            )
            assert token.alternatives is not None
            best = [logprob for _, logprob in token.alternatives]
            wanted = expected[position].topk(len(best)).values.tolist()
            assert best == pytest.approx(wanted, abs=1e-3)
            assert len(best) == sequence.sampling.prompt_logprobs


def prompts(*lengths: int) -> list[list[int]]:
    random = Random(1)
    return [[random.randrange(256) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_they_are_those_of_plain_transformers(chunked: bool) -> None:
    run = Run(512, chunked=chunked)
    for number, prompt in enumerate(prompts(1, 2, 15, 16, 17, 49, 120, 97)):
        run.add(prompt, scored=number % 3)
    others = [run.add(prompt, scored=None) for prompt in prompts(40, 5)]
    run.finish()
    for sequence in run.sequences:
        if sequence not in others:
            run.check(sequence)
        else:
            assert not run.scored[sequence.sequence_id]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_tells_no_token_twice(mode: str) -> None:
    run = Run(24, swap_blocks=128 if mode == "swap" else 0)
    for prompt in prompts(90, 100, 110, 90, 80, 100):
        run.add(prompt, scored=2, max_tokens=60)
    run.finish()
    preempted = [event for event in run.events if isinstance(event, RequestPreempted)]
    assert {event.mode for event in preempted} == {mode}
    for sequence in run.sequences:
        run.check(sequence)
        alone = Run(64)
        alone.add(sequence.prompt, scored=None, max_tokens=60)
        alone.finish()
        assert alone.sequences[0].tokens == sequence.tokens


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_prompt_that_is_preempted_while_it_is_scored_is_scored_on(mode: str) -> None:
    """Six that decode outgrow the pool while a long prompt is computed, which others wait for."""
    run = Run(31, swap_blocks=128 if mode == "swap" else 0)
    decoding = [run.add(prompt, scored=None, max_tokens=20) for prompt in prompts(*[10] * 6)]
    (prompt,) = prompts(400)
    first, *others = run.call(prompt, 2, 4, 3)
    run.finish()
    preempted = [event for event in run.events if isinstance(event, RequestPreempted)]
    assert {event.mode for event in preempted} == {mode}
    assert preempted[0].sequence == first.sequence_id
    assert 0 < preempted[0].discarded_tokens < 399
    run.check(first)
    assert sum(run.plans) == 399, "no logits are asked for twice"
    assert [len(s.tokens) for s in (first, *others)] == [404] * 3
    assert [s.num_preemptions for s in decoding] == [0] * 6


@pytest.mark.parametrize("max_tokens", [0, 8])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_the_first_of_several_samples_scores_the_prompt_for_all(
    chunked: bool, max_tokens: int
) -> None:
    """Logits of prompts and of forks come from one step and are not mixed up."""
    run = Run(512, chunked=chunked, budget=64)
    asked = prompts(30, 48, 5, 21)
    calls = [run.call(prompt, number % 3, max_tokens, 3) for number, prompt in enumerate(asked)]
    run.finish()
    forks = [e for e in run.events if isinstance(e, BlocksShared) and e.cause == "fork"]
    assert forks
    for prompt, (first, *others) in zip(asked, calls, strict=True):
        run.check(first)
        assert not any(run.scored[sequence.sequence_id] for sequence in others)
        alone = Run(64)
        alone.call(prompt, None, max_tokens, 3)
        alone.finish()
        assert [s.tokens for s in alone.sequences] == [s.tokens for s in (first, *others)]
        assert {s.finish_reason for s in (first, *others)} == {"length"}


def test_a_cached_prompt_is_computed_again_and_no_lookup_is_told() -> None:
    """Blocks that are found have KV but no logits."""
    run = Run(128)
    (prompt,) = prompts(100)
    run.add(prompt, scored=None)
    run.finish()
    asking = run.add(prompt, scored=1)
    run.finish()
    run.check(asking)
    assert asking.computed_prompt_tokens == 100
    lookups = [event for event in run.events if isinstance(event, PrefixLookup)]
    assert [event.sequence for event in lookups] == [0]
    after = run.add(prompt, scored=None)
    run.finish()
    assert after.computed_prompt_tokens == 100 - 96, "others find the prompt as before"


def test_a_step_scores_a_limited_number_of_tokens() -> None:
    """Each takes a row of logits, for which no memory was measured."""
    run = Run(256, budget=1024)
    for prompt in prompts(600, 500):
        run.add(prompt, scored=0)
    run.finish()
    assert max(run.plans) == MAX_SCORED + 1, "as every sequence that runs, the other gets one"
    assert sum(run.plans) == 599 + 499
    for sequence in run.sequences:
        run.check(sequence)


def test_a_prompt_is_scored_token_by_token_as_well() -> None:
    """Such a step looks like one that decodes, but wants other logits."""
    run = Run(16, budget=1)
    for prompt in prompts(20, 1, 17):
        run.call(prompt, 2, 3, 2)
    run.finish()
    for first in run.sequences[::2]:
        run.check(first)


@pytest.mark.parametrize("scored", [None, 1])
def test_without_tokens_to_generate_only_the_prompt_is_computed(scored: int | None) -> None:
    run = Run(128)
    (prompt,) = prompts(70)
    sequence = run.add(prompt, scored=scored, max_tokens=0)
    run.finish()
    assert sequence.tokens == prompt
    assert sequence.finish_reason == "length"
    if scored is not None:
        run.check(sequence)
    assert run.pool.num_active == 0
    assert run.pool.num_cached == 4
