"""The curve of a trace: a plain LRU cache; each request looks up and touches all its ids."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kvscope.traces import Trace
from kvscope.whatif.findings import Findings, Point, WhatIfError, capacities_up_to
from kvscope_exporter.state.cache.curve import HitCurve
from kvscope_exporter.state.cache.run_stack import RunStack

TELL_EVERY = 1024
"""Requests between two calls of `on_progress`."""


def curve_of_trace(
    trace: Trace,
    capacities: Sequence[int] = (),
    on_progress: Callable[[int], None] = lambda requests: None,
) -> Findings:
    """The curve of a trace's requests. Raises WhatIfError, TraceError or OSError."""
    paths = (request.hash_ids for request in trace)
    try:
        found = curve_of_paths(paths, capacities, on_progress)
    except WhatIfError as error:
        raise WhatIfError(f"{trace.path}: {error}") from None
    return replace(
        found,
        format=str(trace.dialect),
        block_tokens=trace.block_size,
        doubts=trace.doubts,
    )


def curve_of_paths(
    paths: Iterable[Sequence[int]],
    capacities: Sequence[int] = (),
    on_progress: Callable[[int], None] = lambda requests: None,
) -> Findings:
    """Compute the curve in one pass. `paths`: names of each request's blocks, in order of arrival,
    which form a tree.

    capacities: empty stands for a grid up to the number of distinct blocks. The memory is a few
    hundred bytes for each distinct block.

    Raises WhatIfError for a trace without blocks.
    """
    grid = sorted(set(capacities))
    stack, curve = RunStack(grid[-1] if grid else None), HitCurve()
    distinct: set[int] = set()
    requests = 0
    for path in paths:
        requests += 1
        distinct.update(path)
        curve.look_up(len(path), 0, 0, stack.take(path))
        stack.push(path)
        if requests % TELL_EVERY == 0:
            on_progress(requests)
    queried = curve.queried_blocks
    if not queried:
        raise WhatIfError("no request in it has a block")
    grid = grid or capacities_up_to(len(distinct))
    return Findings(
        kind="trace",
        points=[Point(c, hits, queried) for c, hits in zip(grid, curve.hits_at(grid), strict=True)],
        lookups=requests,
        queried_blocks=queried,
        distinct_blocks=len(distinct),
        seconds=None,
    )
