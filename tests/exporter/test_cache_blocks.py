"""The counts that blocks keep are those of the blocks."""

from random import Random

import pytest

from kvscope_events.events import PoolSnapshot
from kvscope_exporter.state.cache.blocks import NEVER, Blocks
from tests.exporter.stream import block_hash


@pytest.mark.parametrize("seed", range(30))
def test_blocks_from_before_are_counted_until_they_are_written_or_lost(seed: int) -> None:
    rng, blocks = Random(seed), Blocks()
    names = [block_hash(n) if rng.random() < 0.7 else None for n in range(16)]
    blocks.replace(PoolSnapshot(16, 4, 0, 0, [0] * 16, names, []))
    for time_ns in range(30):
        some = [rng.randint(-1, 17) for _ in range(rng.randint(0, 3))]
        named = [block_hash(99)] * len(some)
        if not (rng.random() < 0.5 and blocks.write(some, named, time_ns)):
            blocks.lose(some)
        held = zip(blocks.names, blocks.written_ns, strict=True)
        untimed = sum(name is not None and written == NEVER for name, written in held)
        assert blocks.num_untimed == untimed
