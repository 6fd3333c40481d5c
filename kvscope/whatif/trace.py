"""The curve of a trace: a plain LRU cache; each request looks up and touches all its ids."""

from collections.abc import Callable, Iterable, Sequence

from kvscope.whatif.findings import Findings, Point, WhatIfError, capacities_up_to
from kvscope_exporter.state.cache.curve import HitCurve
from kvscope_exporter.state.cache.run_stack import RunStack

TELL_EVERY = 1024
"""Requests between two calls of `on_progress`."""


def curve_of_trace(
    paths: Iterable[Sequence[int]],
    capacities: Sequence[int] = (),
    on_progress: Callable[[int], None] = lambda requests: None,
) -> Findings:
    """Compute the curve in one pass. `paths`: ids of each request's blocks, in order of arrival.

    capacities: empty stands for a grid up to the number of distinct blocks. The memory is a few
    hundred bytes for each distinct block.

    Raises WhatIfError for ids that do not form a tree, and for a trace without blocks.
    """
    grid = sorted(set(capacities))
    stack, curve = RunStack(grid[-1] if grid else None), HitCurve()
    parents: dict[int, int | None] = {}
    requests = 0
    for path in paths:
        requests += 1
        grow(parents, path, requests)
        curve.look_up(len(path), 0, 0, stack.take(path))
        stack.push(path)
        if requests % TELL_EVERY == 0:
            on_progress(requests)
    queried = curve.queried_blocks
    if not queried:
        raise WhatIfError("no request in it has a block")
    grid = grid or capacities_up_to(len(parents))
    return Findings(
        kind="trace",
        points=[Point(c, hits, queried) for c, hits in zip(grid, curve.hits_at(grid), strict=True)],
        lookups=requests,
        queried_blocks=queried,
        distinct_blocks=len(parents),
        seconds=None,
    )


def grow(parents: dict[int, int | None], path: Sequence[int], request: int) -> None:
    """Add a path to the tree; an id stands for a block with all before it. Raises WhatIfError."""
    before = None
    for block in path:
        if parents.setdefault(block, before) != before:
            raise WhatIfError(
                f"request {request}: hash_ids: block {block} follows {_name(before)} here and "
                f"{_name(parents[block])} in an earlier request; ids have to form a tree"
            )
        before = block


def _name(block: int | None) -> str:
    return "nothing" if block is None else f"block {block}"
