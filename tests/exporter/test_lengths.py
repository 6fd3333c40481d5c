"""Lengths of prompts and answers by prompt and by answer, not by request."""

from collections.abc import Sequence

from kvscope_events.events import (
    EngineEvent,
    PoolCreated,
    RequestArrived,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_events.vocabulary import FinishReason
from kvscope_exporter.state import Lengths

BLOCK = 16


def lengths_of(events: Sequence[EngineEvent]) -> Lengths:
    fold = Lengths()
    for event in (PoolCreated(100, BLOCK, 0, 0), *events):
        fold.apply(event)
    return fold


def arrived(request: int, prompts: Sequence[int], samples: int) -> list[EngineEvent]:
    """A request with these prompts, each with this number of samples."""
    added = [
        SequenceAdded(10 * request + place, request, tokens, 9)
        for place, tokens in enumerate(tokens for tokens in prompts for _ in range(samples))
    ]
    return [RequestArrived(request, sum(prompts), 9), *added]


def ended(sequence: int, tokens: int, reason: FinishReason = "length") -> SequenceFinished:
    return SequenceFinished(sequence, 1, reason, 20, tokens, 99, 0, 5, 1, 1, 1)


def test_a_prompt_counts_once_whatever_its_samples() -> None:
    single, eightfold = (lengths_of(arrived(1, [160], samples)) for samples in (1, 8))
    assert (single.prompts, single.prompt_blocks, single.sequences) == (1, 10, 1)
    assert (eightfold.prompts, eightfold.prompt_blocks, eightfold.sequences) == (1, 10, 8)


def test_prompts_of_one_request_count_each() -> None:
    fold = lengths_of([*arrived(1, [1, 160, 17], 4), *arrived(2, [40], 1)])
    assert (fold.prompts, fold.prompt_blocks) == (4, 1 + 10 + 2 + 3)


def test_sequences_whose_arrival_was_lost_have_a_prompt_each() -> None:
    fold = lengths_of(arrived(1, [160], 8)[:3])
    fold.on_gap()
    for event in (SequenceAdded(17, 1, 160, 9), *arrived(2, [40], 2)):
        fold.apply(event)
    assert (fold.prompts, fold.prompt_blocks) == (1 + 1 + 1, 10 + 10 + 3)


def test_each_sample_that_ends_by_itself_is_an_answer() -> None:
    fold = lengths_of(
        [ended(1, 30), ended(2, 50, "stop"), ended(3, 7, "abort"), ended(4, 1, "error")]
    )
    assert (fold.answers, fold.answer_tokens) == (2, 80)
