"""The prompts of a trace share prefixes exactly as its block ids do."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvscope.load import BlockTokens
from kvscope.load.tokens import named_tokens
from kvscope.traces import TraceRequest

TRACE_BLOCK_TOKENS = 512


def make_request(hash_ids: list[int], last_block: int = TRACE_BLOCK_TOKENS) -> TraceRequest:
    input_length = TRACE_BLOCK_TOKENS * (len(hash_ids) - 1) + last_block
    return TraceRequest(
        timestamp_ms=0,
        input_length=input_length,
        output_length=1,
        hash_ids=hash_ids,
        block_size=TRACE_BLOCK_TOKENS,
    )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


@st.composite
def trees(draw: st.DrawFn) -> list[TraceRequest]:
    """Requests whose ids form a tree: each goes down from the root to a node drawn at random."""
    size = draw(st.integers(2, 40))
    start = draw(st.sampled_from([0, 200, 65_000, 182_000]))
    parents = [0, *(draw(st.integers(0, node - 1)) for node in range(1, size))]
    requests = []
    for leaf in draw(st.lists(st.integers(1, size - 1), min_size=2, max_size=8)):
        path = [leaf]
        while path[-1]:
            path.append(parents[path[-1]])
        last_block = draw(st.integers(1, TRACE_BLOCK_TOKENS))
        requests.append(make_request([start + node for node in reversed(path)], last_block))
    return requests


@given(
    requests=trees(),
    block_tokens=st.sampled_from([4, 16, 32, 100, 512]),
    vocab_size=st.sampled_from([32, 256, 50_000]),
    seed=st.integers(0, 3),
)
def test_common_prefixes_in_blocks_equal_those_of_the_ids(
    requests: list[TraceRequest], block_tokens: int, vocab_size: int, seed: int
) -> None:
    blocks = BlockTokens(
        length_scale=block_tokens / TRACE_BLOCK_TOKENS, vocab_size=vocab_size, seed=seed
    )
    assert blocks.block_tokens == block_tokens
    prompts = [blocks.prompt(request) for request in requests]
    for request, prompt in zip(requests, prompts, strict=True):
        assert len(prompt) // block_tokens == request.num_full_blocks
        assert all(0 <= token < vocab_size for token in prompt)
        for other, other_prompt in zip(requests, prompts, strict=True):
            shared_ids = common_prefix(
                request.hash_ids[: request.num_full_blocks],
                other.hash_ids[: other.num_full_blocks],
            )
            assert common_prefix(prompt, other_prompt) // block_tokens == shared_ids


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20))
@example(5, 261)
def test_different_ids_differ_and_neighbours_at_once(one: int, other: int) -> None:
    blocks = BlockTokens()
    if one != other:
        assert blocks.block(one) != blocks.block(other)
    assert blocks.block(one)[0] != blocks.block(one + 1)[0]


def test_the_same_everywhere_and_another_with_another_seed() -> None:
    assert named_tokens("0/block/7", 4, 256) == named_tokens("0/block/7", 9, 256)[:4]
    # A golden value: a replay next year on another machine is the same workload.
    assert BlockTokens(length_scale=1 / 64).block(300) == [44, 1, 238, 126, 177, 171, 79, 197]
    assert BlockTokens(seed=1).block(300) != BlockTokens(seed=0).block(300)


@pytest.mark.parametrize(
    ("scale", "block_tokens", "lengths"),
    [
        (1.0, 512, {1: 1, 511: 511, 512: 512, 513: 513}),
        # 511 tokens scale to 31.9, but a partial block stays partial.
        (1 / 16, 32, {1: 1, 8: 1, 256: 16, 511: 31, 512: 32, 513: 33}),
        (0.001, 1, {1: 1, 511: 1, 512: 1, 1024: 2}),
        (2.0, 1024, {256: 512, 512: 1024}),
    ],
)
def test_lengths_scale_by_block(scale: float, block_tokens: int, lengths: dict[int, int]) -> None:
    blocks = BlockTokens(length_scale=scale)
    assert blocks.block_tokens == block_tokens
    for input_length, expected in lengths.items():
        num_ids = -(-input_length // TRACE_BLOCK_TOKENS)
        request = make_request(list(range(num_ids)), (input_length - 1) % TRACE_BLOCK_TOKENS + 1)
        assert request.input_length == input_length
        assert len(blocks.prompt(request)) == expected


def test_an_id_that_a_block_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="block id 256 needs 2 tokens of a vocabulary of 256"):
        BlockTokens(length_scale=0.001).block(256)
