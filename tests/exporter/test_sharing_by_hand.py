"""Every number of the example in sharing.md is that of the real engine on its demo model."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.model.loader import LoadedModel, load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import Request, SamplingParams, Sequence, SequenceState
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.sizing.units import format_bytes
from kvscope_engine.step import Step
from kvscope_events.bus import EventBus
from kvscope_events.events import StepCompleted
from kvscope_exporter.state import Churn, Fold, Ledger

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "studies" / "sharing.md"
PROMPT = list(range(40))
SAMPLES, OUTPUT_TOKENS, BLOCK_SIZE, NUM_BLOCKS = 4, 24, 16, 64


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the document, without its head."""
    below = DOCUMENT.read_text().split(f"\n### {heading}\n", 1)[1].split("\n##", 1)[0]
    rows = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@dataclass(frozen=True)
class State:
    """After a step, as the exporter's folds have it."""

    computed_tokens: int
    active: int
    saved: int
    copies: int


class Served:
    """The same four samples: as one call, or as four calls that find nothing of each other."""

    def __init__(self, loaded: LoadedModel, *, as_one: bool) -> None:
        bus, ledger, churn = EventBus(), Ledger(), Churn()
        heard = bus.subscribe()
        runner = ModelRunner(loaded.model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
        self.bytes_per_block = runner.layout.bytes_per_block
        pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE, bus, bytes_per_block=self.bytes_per_block)
        kv = KVManager(pool, bus, enable_prefix_caching=as_one, copier=runner.cache)
        config = SchedulerConfig(max_model_len=128, max_num_seqs=8, max_num_batched_tokens=256)
        scheduler = Scheduler(config, kv, bus, frozenset())
        step = Step(scheduler, pool, runner, bus)
        self.samples = [_sample(number, 0 if as_one else number) for number in range(SAMPLES)]
        for call in [self.samples] if as_one else [[sample] for sample in self.samples]:
            request = Request(
                request_id=call[0].request_id,
                sequences=call,
                arrival_ns=time.monotonic_ns(),
                choices_per_prompt=len(call),
            )
            scheduler.add(request)
        self.states: list[State] = []
        while any(sample.state is not SequenceState.FINISHED for sample in self.samples):
            assert step.run() is not None
            bus.flush()
            taken = heard.take()
            assert taken is not None
            folds: tuple[Fold, ...] = (ledger, churn)
            for fold in folds:
                fold.on_batch(taken[0])
            (end,) = (e for e in taken[0].events if isinstance(e, StepCompleted))
            self.states.append(
                State(
                    end.prefill_tokens + end.decode_tokens,
                    ledger.num_active,
                    ledger.num_deduplicated,
                    churn.copies,
                )
            )
        assert ledger.imbalance == 0

    def size(self, blocks: int) -> str:
        return format_bytes(blocks * self.bytes_per_block)

    @property
    def most(self) -> int:
        return max(state.active for state in self.states)

    @property
    def tokens(self) -> list[list[int]]:
        return [sample.tokens[len(PROMPT) :] for sample in self.samples]


def _sample(number: int, request: int) -> Sequence:
    sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=1.0, seed=11 + number)
    hasher = PrefixHasher(chain_seed("demo"), BLOCK_SIZE)
    return Sequence(number, request, list(PROMPT), len(PROMPT), sampling, hasher)


@pytest.fixture(scope="module")
def both() -> tuple[Served, Served]:
    loaded = load_model(ModelConfig(model="demo"))
    return Served(loaded, as_one=True), Served(loaded, as_one=False)


def test_the_samples_are_the_same_whether_they_share_or_not(both: tuple[Served, Served]) -> None:
    shared, alone = both
    assert shared.tokens == alone.tokens
    assert len({*map(tuple, shared.tokens)}) == SAMPLES, "four different ones"


def test_the_steps_of_the_document_are_those_of_the_engine(both: tuple[Served, Served]) -> None:
    shared, alone = both
    rows = table("Step by step")
    assert len(shared.states) == len(alone.states) == int(rows[-1][0])
    for number, *cells in rows:
        mine, theirs = shared.states[int(number) - 1], alone.states[int(number) - 1]
        assert cells[:-1] == [
            *map(str, (mine.computed_tokens, mine.active, mine.saved, mine.copies)),
            shared.size(mine.active),
            *map(str, (theirs.computed_tokens, theirs.active)),
            alone.size(theirs.active),
        ]


def test_steps_that_the_document_leaves_out_change_no_block(both: tuple[Served, Served]) -> None:
    named = {int(row[0]) for row in table("Step by step")}
    for served in both:
        for number, (before, after) in enumerate(
            zip(served.states, served.states[1:], strict=False), start=2
        ):
            same = (before.active, before.saved, before.copies) == (
                *(after.active, after.saved),
                after.copies,
            )
            assert same or number in named


def test_the_sums_of_the_document_are_those_of_the_engine(both: tuple[Served, Served]) -> None:
    sums = {name: cells for name, *cells in table("The sums")}
    figures = [
        {
            "tokens computed": str(sum(state.computed_tokens for state in served.states)),
            "blocks at most": str(served.most),
            "bytes at most": served.size(served.most),
            "blocks copied": str(served.states[-1].copies),
            "bytes copied": served.size(served.states[-1].copies),
        }
        for served in both
    ]
    assert sums == {name: [one[name] for one in figures] for name in figures[0]}
    text = re.sub(r"\s+", " ", DOCUMENT.read_text())
    assert f"{both[0].bytes_per_block:,} bytes" in text
