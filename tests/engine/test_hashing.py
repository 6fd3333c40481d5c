"""Names of blocks: equal exactly for equal prefixes, whenever and wherever they are computed."""

import hashlib
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.hashing import PrefixHasher, chain_seed

SEED = chain_seed("model")
TOKENS = st.lists(st.integers(0, 3), max_size=40)


def names(tokens: list[int], block_size: int, seed: bytes = SEED) -> list[bytes]:
    return PrefixHasher(seed, block_size).extend(tokens, len(tokens) // block_size)


def ref_names(tokens: list[int], block_size: int, seed: bytes = SEED) -> list[bytes]:
    """The definition, block by block from the start."""
    packed = b"".join(token.to_bytes(4, "little") for token in tokens)
    return [
        hashlib.sha256(seed + packed[: 4 * block_size * (i + 1)]).digest()[:16]
        for i in range(len(tokens) // block_size)
    ]


@given(tokens=TOKENS, block_size=st.integers(1, 5))
def test_names_are_digests_of_the_whole_prefix(tokens: list[int], block_size: int) -> None:
    assert names(tokens, block_size) == ref_names(tokens, block_size)


@given(one=TOKENS, other=TOKENS, block_size=st.integers(1, 4))
def test_names_are_equal_exactly_as_far_as_the_tokens_are(
    one: list[int], other: list[int], block_size: int
) -> None:
    for i, (a, b) in enumerate(zip(names(one, block_size), names(other, block_size), strict=False)):
        end = (i + 1) * block_size
        assert (a == b) == (one[:end] == other[:end])


@given(tokens=TOKENS, cuts=st.lists(st.integers(0, 10), max_size=5))
def test_a_growing_sequence_gets_the_same_names(tokens: list[int], cuts: list[int]) -> None:
    hasher = PrefixHasher(SEED, 4)
    whole = len(tokens) // 4
    for cut in sorted(min(cut, whole) for cut in cuts):
        hasher.extend(tokens[: 4 * cut], cut)
    assert hasher.extend(tokens, whole) == names(tokens, 4)


def test_seed_keeps_model_adapter_and_salt_apart() -> None:
    seeds = {
        chain_seed("m"),
        chain_seed("m", adapter="a"),
        chain_seed("m", salt="a"),
        chain_seed("ma"),
        chain_seed("m", "a", "b"),
        chain_seed("m", "ab"),
    }
    assert len(seeds) == 6


def test_a_token_id_that_is_no_unsigned_32_bit_number_is_refused() -> None:
    with pytest.raises(struct.error, match=r"format requires|range"):
        names([2**32], 1)


def test_names_are_the_same_in_another_process() -> None:
    code = (
        "from kvscope_engine.hashing import *;"
        "print(PrefixHasher(chain_seed('model'), 2).extend([1, 2, 3, 4], 2)[1].hex())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
    )
    assert other.stdout.strip() == names([1, 2, 3, 4], 2)[1].hex()
