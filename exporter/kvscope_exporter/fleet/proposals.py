"""Proposals for a fleet: a router, a shared tier, fewer larger replicas; each with its price.

The gains are upper bounds: each request is judged by itself. A router and a tier find much of the
same, so theirs do not add up.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from kvscope_exporter import words
from kvscope_exporter.state.fleet import Steps

Kind = Literal["router", "shared_tier", "larger_replicas"]
WORTH_IT = 0.05
"""Share of the blocks asked for that a proposal must be able to find: most changes of a fleet are
not worth less."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    text: str
    """The proposal with its gain, as one sentence."""
    price: str
    """One sentence."""
    price_bytes: int | None
    """Memory that it takes; None: none, or not known."""
    tier_blocks: int | None
    """Size of the tier; None: it is not one."""
    gained_blocks: int
    """Blocks that it would have found beyond the own hits, at most."""
    saved_tokens_per_second: float | None
    """Prompt tokens that need not be computed, at most, since the process began; None: it has only
    just begun."""


def proposals(
    steps: Steps,
    *,
    tiers: Sequence[tuple[int, int]],
    enough_blocks: int | None,
    block_tokens: int,
    block_bytes: int | None,
    pool_blocks: int,
    replicas: int,
    seconds: float,
) -> list[Proposal]:
    """The largest gain first. tiers: blocks, and hits with a tier of that size."""
    if not steps.asked:
        return []

    def proposal(
        kind: Kind, gain: int, text: str, price: str, tier_blocks: int | None = None
    ) -> Proposal:
        size = None
        if tier_blocks is not None and block_bytes is not None:
            size = tier_blocks * block_bytes
        rate = gain * block_tokens / seconds if seconds else None
        more = f"finds up to {gain / steps.asked:.1%} more of the blocks asked for"
        saved = "" if rate is None else f", and saves up to {rate:,.0f} prompt tokens a second"
        return Proposal(
            kind=kind,
            text=f"{text} {more}{saved}.",
            price=price,
            price_bytes=size,
            tier_blocks=tier_blocks,
            gained_blocks=gain,
            saved_tokens_per_second=rate,
        )

    least = WORTH_IT * steps.asked
    found = []
    routed = steps.best - steps.own
    if replicas > 1 and routed >= least:
        price = "No memory; replicas that hold popular content get more of the load."
        found.append(proposal("router", routed, "A router that knows the caches", price))
    stored = dict(tiers).get(enough_blocks or 0, 0) - steps.own
    if enough_blocks is not None and stored >= least:
        size = _size(enough_blocks, block_bytes)
        share = f" ({enough_blocks / pool_blocks:.1f} times all pools)" if pool_blocks else ""
        price = f"{size} of host memory or of a store{share}, and the copies to and from it."
        text = f"A shared tier of {size}"
        found.append(proposal("shared_tier", stored, text, price, enough_blocks))
    lost = steps.seen - steps.anywhere
    if replicas > 1 and not found and lost >= least:
        price = (
            f"More GPUs for each replica; a restart of all {replicas}, which empties their caches."
        )
        found.append(proposal("larger_replicas", lost, "Fewer, larger replicas", price))
    return sorted(found, key=lambda each: -each.gained_blocks)


def _size(blocks: int, block_bytes: int | None) -> str:
    return f"{blocks:,} blocks" if block_bytes is None else words.size(blocks * block_bytes)
