"""Carries out the adviser's first proposal in three situations, and measures again.

`python -m tools.checks.advice_check` prints prediction and outcome side by side. Each situation
is our engine in simulated time (`tests/support/paced.py`) under the same load before and after, so
that the figures are the same on every machine.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.machine.host_memory import Available, HostMemory
from kvscope_exporter.machine.machine import Machine
from tests.fakes.nvml import GIB
from tests.support.loads import chats
from tests.support.paced import Paced
from tests.support.simulated_card import paced_on_card
from tools.pictures.card import ACTIVATIONS_PER_STEP, ACTIVATIONS_PER_TOKEN

SECONDS = 300.0
LIMIT = 0.2
"""Greatest difference of an outcome from what was predicted that needs no reason."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity: as it was, as the proposal says it will be, as it became."""

    name: str
    before: float
    predicted: float
    outcome: float
    least: float = 0.0
    """Differences below this one count as none: of a number that is 0, 20 % are 0 as well."""

    @property
    def is_close(self) -> bool:
        return abs(self.outcome - self.predicted) <= max(LIMIT * abs(self.predicted), self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    situation: str
    proposal: Proposal
    figures: list[Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A second of an engine under load, on average; its memory at the end."""

    hit_ratio: float
    prefill_tokens: float
    recomputed_tokens: float
    preemptions: float
    errors: float
    pool_blocks: float


def measure(engine: Paced, seconds: float) -> Measured:
    read = engine.metric
    first = {"phase": "first"}
    return Measured(
        # Full blocks, as the curve counts them: partial ones cannot hit.
        hit_ratio=read("kvscope_prefix_cache_hit_blocks_total", **first)
        / (
            read("kvscope_prefix_cache_queried_blocks_total", **first)
            - read("kvscope_prefix_cache_missed_blocks_total", cause="partial")
        ),
        prefill_tokens=read("kvscope_step_tokens_total", phase="prefill") / seconds,
        recomputed_tokens=read("kvscope_preemption_recomputed_tokens_total") / seconds,
        preemptions=read("kvscope_preemptions_total") / seconds,
        errors=read("kvscope_engine_oom_events_total") / seconds,
        pool_blocks=read("kvscope_kv_usable_blocks"),
    )


def pool_too_small(
    seconds: float = SECONDS,
    *,
    seed: int = 1,
    blocks: int = 400,
    calls_per_second: float = 4,
    output_tokens: int = 100,
    pause_seconds: float = 10,
) -> Outcome:
    """Chats whose prefixes are evicted between two turns, and which preempt each other."""
    load = chats(
        seed=seed,
        seconds=seconds,
        calls_per_second=calls_per_second,
        output_tokens=output_tokens,
        pause_seconds=pause_seconds,
    )

    def played(num_blocks: int) -> Paced:
        machine = Machine(host=_resident, available=lambda: Available(64 * GIB, 32 * GIB))
        engine = Paced(num_blocks=num_blocks, machine=machine)
        engine.play(load, seconds)
        return engine

    engine = played(blocks)
    proposal = engine.advice().proposals[0]
    assert proposal.option == "num_gpu_blocks_override", proposal
    before = measure(engine, seconds)
    after = measure(played(int(proposal.proposed)), seconds)
    figures = list(_pool_figures(proposal, before, after))
    return Outcome(situation="pool too small", proposal=proposal, figures=figures)


def pool_too_large(seconds: float = SECONDS) -> Outcome:
    """Few chats on a card whose pool has room for many."""
    load = chats(seed=2, seconds=seconds, calls_per_second=1, output_tokens=60)

    def played(utilization: float) -> tuple[Paced, float]:
        engine, card = paced_on_card(utilization=utilization, max_num_batched_tokens=512)
        engine.play(load, seconds)
        return engine, card.free + card.cached

    engine, free_before = played(0.9)
    proposal = engine.advice().proposals[0]
    assert proposal.option == "gpu_memory_utilization", proposal
    before = measure(engine, seconds)
    changed, free_after = played(proposal.proposed)
    after = measure(changed, seconds)
    freed = float(proposal.gain.freed_bytes or 0) / 2**20
    figures = [
        *_pool_figures(proposal, before, after),
        Figure("memory freed, MiB", 0.0, freed, (free_after - free_before) / 2**20),
        Figure("preemptions / s", before.preemptions, 0.0, after.preemptions),
    ]
    return Outcome(situation="pool too large", proposal=proposal, figures=figures)


def chunk_too_large(seconds: float = SECONDS) -> Outcome:
    """Long prompts on a card where another process has taken what large steps need."""
    load = chats(
        seed=3, seconds=seconds, calls_per_second=2, turn_tokens=900, turns=4, output_tokens=60
    )

    def played(max_num_batched_tokens: int) -> tuple[Paced, float]:
        engine, card = paced_on_card(
            num_blocks=1800,
            foreign_bytes=GIB // 2,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        engine.play(load, seconds)
        return engine, card.peak

    engine, _ = played(2048)
    proposal = engine.advice().proposals[0]
    assert proposal.option == "max_num_batched_tokens", proposal
    before = measure(engine, seconds)
    changed, peak = played(int(proposal.proposed))
    after = measure(changed, seconds)
    gain = proposal.gain
    assert gain.step_bytes_to is not None
    needed = (ACTIVATIONS_PER_STEP + 2048 * ACTIVATIONS_PER_TOKEN) / 2**20
    figures = [
        Figure(
            "steps out of memory / s",
            *(before.errors, gain.errors_per_second_to or 0.0, after.errors),
        ),
        _recomputed(proposal, before, after),
        Figure("largest step, MiB", needed, gain.step_bytes_to / 2**20, peak / 2**20),
    ]
    return Outcome(situation="chunk too large", proposal=proposal, figures=figures)


SITUATIONS: tuple[Callable[[float], Outcome], ...] = (
    pool_too_small,
    pool_too_large,
    chunk_too_large,
)


def _pool_figures(proposal: Proposal, before: Measured, after: Measured) -> Iterator[Figure]:
    gain = proposal.gain
    assert gain.hit_ratio_to is not None
    yield Figure(
        "hit ratio, %",
        *(100 * ratio for ratio in (before.hit_ratio, gain.hit_ratio_to, after.hit_ratio)),
    )
    pool = before.pool_blocks + proposal.price.pool_blocks
    yield Figure("pool, blocks", before.pool_blocks, pool, after.pool_blocks)
    if gain.saved_tokens_per_second:
        saved = before.prefill_tokens - after.prefill_tokens
        yield Figure("prompt tokens saved / s", 0.0, gain.saved_tokens_per_second, saved)
    if gain.recomputed_tokens_per_second_to is not None:
        yield _recomputed(proposal, before, after)


def _recomputed(proposal: Proposal, before: Measured, after: Measured) -> Figure:
    """Less than a hundredth of the prompt tokens is not worth a restart either."""
    return Figure(
        "recomputed tokens / s",
        before.recomputed_tokens,
        proposal.gain.recomputed_tokens_per_second_to or 0.0,
        after.recomputed_tokens,
        least=before.prefill_tokens / 100,
    )


def _resident(_pid: int) -> HostMemory:
    """All of the pool is in use already."""
    return HostMemory(resident=1 << 40, limit=None, usage=None, unreclaimable=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of load, simulated")
    seconds, console = parser.parse_args().seconds, Console(width=100)
    for play in SITUATIONS:
        outcome = play(seconds)
        table = Table("quantity", "before", "predicted", "outcome", "within 20 %")
        for one in outcome.figures:
            numbers = (f"{n:,.1f}" for n in (one.before, one.predicted, one.outcome))
            table.add_row(one.name, *numbers, "yes" if one.is_close else "no")
        console.print(f"\n{outcome.situation}: {outcome.proposal.text}")
        console.print(f"confidence {outcome.proposal.confidence}: {outcome.proposal.because}")
        console.print(table)


if __name__ == "__main__":
    main()
