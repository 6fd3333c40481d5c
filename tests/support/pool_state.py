"""The state of a pool together with its swap pool, as a ledger that folded all events has it."""

import msgspec

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.swap.manager import SwapManager
from kvscope_events.events import PoolSnapshot


def pool_state(pool: BlockPool, swap: SwapManager | None) -> PoolSnapshot:
    """The pool alone knows the size of the swap pool only, not what is used of it."""
    state = pool.snapshot()
    if swap is None:
        return state
    host = swap.host
    return msgspec.structs.replace(state, swap_blocks=host.num_blocks, swap_used=host.num_used)
