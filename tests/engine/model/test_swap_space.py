"""Blocks copied to the host and back are the same, block by block, whatever the layers' shapes."""

from random import Random

import pytest
import torch
from torch import Tensor

from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape
from kvscope_engine.model.swap_space import STAGING_BYTES, SwapSpace

BLOCKS, HOST_BLOCKS, BLOCK_SIZE = 12, 20, 4
ONE_SHAPE = (LayerShape(2, 8),) * 3
TWO_SHAPES = (LayerShape(2, 8), LayerShape(1, 16), LayerShape(2, 8))
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

pytestmark = pytest.mark.parametrize("device", DEVICES)


def make_cache(
    device: str, layers: tuple[LayerShape, ...], dtype: torch.dtype = torch.float32
) -> KVCache:
    layout = KVLayout(layers=layers, block_size=BLOCK_SIZE, dtype=dtype, computed=torch.float32)
    cache = KVCache(layout, BLOCKS, torch.device(device))
    torch.manual_seed(0)
    for layer in cache.layers:
        layer.copy_(torch.randn(layer.shape))
    return cache


def make_space(cache: KVCache, monkeypatch: pytest.MonkeyPatch) -> SwapSpace:
    """On a CUDA device, two blocks to a chunk: calls of 5 or 6 use a lane's buffers twice."""
    staging_bytes = 4 * cache.layout.bytes_per_block
    monkeypatch.setattr("kvscope_engine.model.swap_space.STAGING_BYTES", staging_bytes)
    return SwapSpace(cache, HOST_BLOCKS)


def content(cache: KVCache, blocks: list[int]) -> list[Tensor]:
    index = torch.tensor(blocks, device=cache.device)
    return [part for layer in range(len(cache.layers)) for part in cache.gather(layer, index)]


@pytest.mark.parametrize("layers", [ONE_SHAPE, TWO_SHAPES], ids=["one shape", "two shapes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, FP8])
@pytest.mark.parametrize("host", [[3, 4, 5, 6, 7], [9, 2, 3, 17, 18], [7, 6, 5, 4, 3]])
def test_blocks_come_back_as_they_were_into_other_blocks(
    device: str,
    layers: tuple[LayerShape, ...],
    dtype: torch.dtype,
    host: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = make_cache(device, layers, dtype)
    space = make_space(cache, monkeypatch)
    before = content(cache, list(range(BLOCKS)))
    space.swap_out([8, 1, 5, 0, 7], host)
    for block in (8, 1, 5, 0, 7):
        cache.clear(block)
    space.swap_in(host, [2, 10, 11, 5, 4])
    for was, now in zip(before, content(cache, list(range(BLOCKS))), strict=True):
        for block, origin in {2: 8, 10: 1, 11: 5, 5: 0, 4: 7, 3: 3, 9: 9}.items():
            assert torch.equal(now[block], was[origin])
        assert not now[[8, 1, 0, 7]].any()


def test_many_copies_leave_every_block_with_what_was_last_put_there(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against plain dicts, one number a block."""
    cache = make_cache(device, TWO_SHAPES)
    space = make_space(cache, monkeypatch)
    for block in range(BLOCKS):
        for stack in cache.stacks:
            stack.select(2, block).fill_(block)
    there = {block: float(block) for block in range(BLOCKS)}
    host: dict[int, float] = {}
    random = Random(7)
    for _ in range(60):
        count = random.randint(1, 6)
        blocks = random.sample(range(BLOCKS), count)
        if len(host) >= count and random.random() < 0.5:
            from_host = random.sample(sorted(host), count)
            space.swap_in(from_host, blocks)
            there.update({b: host[h] for b, h in zip(blocks, from_host, strict=True)})
        else:
            to_host = random.sample(range(HOST_BLOCKS), count)
            space.swap_out(blocks, to_host)
            host.update({h: there[b] for b, h in zip(blocks, to_host, strict=True)})
        for block, number in there.items():
            for stack in cache.stacks:
                assert (stack.select(2, block) == number).all()
    assert set(there.values()) != set(map(float, range(BLOCKS))), "nothing was ever swapped in"


def test_a_copy_larger_than_its_buffers_keeps_every_block(device: str) -> None:
    """Buffers of their real size: on a CUDA device each chunk takes long enough to be overtaken."""
    layout = KVLayout(layers=(LayerShape(8, 128),) * 4, block_size=16, dtype=torch.float32)
    count = 2 * STAGING_BYTES // layout.bytes_per_block + 1
    cache = KVCache(layout, count, torch.device(device))
    (stack,) = cache.stacks
    numbers = torch.arange(count, dtype=torch.float32, device=device)
    stack.copy_(numbers[:, None, None, None])
    space = SwapSpace(cache, count)
    blocks, host = (Random(seed).sample(range(count), count) for seed in (1, 2))
    space.swap_out(blocks, host)
    stack.zero_()
    moved = [(block + 1) % count for block in blocks]
    space.swap_in(host, moved)
    assert (stack == numbers.roll(1)[:, None, None, None]).all()
