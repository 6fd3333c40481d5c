"""Blocks of running, waiting and future sequences at each moment of the grid: mean and spread.

No sequence is turned away here: this is the demand if the pool were unbounded. Sequences are
independent (each has ended or has grown), so means and variances add up.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from exporter.fold.exhaustion.horizons import GRID
from exporter.fold.exhaustion.lengths import Survival, bin_of

_GONE = 1e-4
"""Share of survivors that counts as zero."""


class Stock(NamedTuple):
    """A sequence that holds blocks, or will as soon as it is admitted."""

    tokens: float  # produced so far
    left: float  # that it may still produce
    blocks: float


class Flow(NamedTuple):
    """Future arrivals of sequences."""

    mean_rate: float  # a second, in the long run
    rate: float  # now
    forget_seconds: float  # in which the one becomes the other
    variance: float  # of the rate far ahead
    error: float  # of the rate now
    mean_error: float  # of the mean, as an estimate
    mean_blocks: float  # of a prompt
    mean_square_blocks: float
    limits: tuple[tuple[float, float], ...]  # (max_tokens, share of sequences), rising


NO_FLOW = Flow(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, ())
"""No arrivals."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Moments at each point of the grid."""

    means: list[float]
    deviations: list[float]
    skews: list[float]
    correlations: list[float]
    """Covariance with the point before."""


def demand(
    stock: Iterable[Stock],
    flow: Flow,
    survival: Survival,
    tokens_per_second: float,
    blocks_per_token: float,
) -> Demand:
    """Blocks held at each point of the grid."""
    size = len(GRID)
    means, variances, covariances = [0.0] * size, [0.0] * size, [0.0] * size
    thirds = [0.0] * size
    hazard, exp = survival.hazard, math.exp
    tokens = [tokens_per_second * seconds for seconds in GRID]
    growth = [blocks_per_token * more for more in tokens]
    for count, produced, left, blocks, squares in _cells(stock):
        before = hazard(produced)
        last_share, last_growth = 1.0, 0.0
        for index, more in enumerate(tokens):
            if more >= left:
                break
            share = exp(before - hazard(produced + more))
            if share < _GONE:
                break
            grown = growth[index]
            held = blocks + count * grown
            both = squares + 2 * grown * blocks + count * grown * grown
            spread = share * (1 - share)
            means[index] += share * held
            variances[index] += spread * both
            thirds[index] += spread * (1 - 2 * share) * both * both / held
            both = squares + (last_growth + grown) * blocks + count * last_growth * grown
            covariances[index] += share * (1 - last_share) * both
            last_share, last_growth = share, grown
    if flow.limits:
        _add_flow(flow, survival, tokens, growth, (means, variances, covariances, thirds))
    deviations = [math.sqrt(value) for value in variances]
    correlations = [0.0]
    for index in range(1, size):
        scale = deviations[index - 1] * deviations[index]
        correlations.append(min(1.0, max(0.0, covariances[index] / scale)) if scale else 1.0)
    skews = [t / d**3 if d else 0.0 for t, d in zip(thirds, deviations, strict=True)]
    return Demand(means, deviations, skews, correlations)


def _cells(stock: Iterable[Stock]) -> list[tuple[int, float, float, float, float]]:
    """Sequences grouped by similar age and limit: number, tokens, left, Σb, Σb²."""
    cells: dict[tuple[int, int], list[float]] = {}
    for tokens, left, blocks in stock:
        key = (bin_of(tokens), bin_of(left) // 2)
        cell = cells.get(key)
        if cell is None:
            cells[key] = [1, tokens, left, blocks, blocks * blocks]
        else:
            cell[0] += 1
            cell[1] += tokens
            cell[2] += left
            cell[3] += blocks
            cell[4] += blocks * blocks
    return [
        (int(count), tokens / count, left / count, blocks, squares)
        for count, tokens, left, blocks, squares in cells.values()
    ]


def _add_flow(
    flow: Flow,
    survival: Survival,
    tokens: list[float],
    growth: list[float],
    moments: tuple[list[float], list[float], list[float], list[float]],
) -> None:
    """Add future arrivals: alive at an age, with its size, at a changing, uncertain rate."""
    means, variances, covariances, thirds = moments
    excess = flow.rate - flow.mean_rate
    alive, size, square = 1.0, flow.mean_blocks, flow.mean_square_blocks
    cube = _cube(size, square, alive)
    lives, sizes, squares, cubes = 0.0, 0.0, 0.0, 0.0  # integrals over age up to this point
    near_sizes, near_squares = 0.0, 0.0  # the same, each age at the excess rate of its time
    before = []  # values at the point before, for the covariance with it
    last, last_chance, last_wandering = 0.0, 0.0, 0.0
    for index, at in enumerate(GRID):
        step = at - last
        more = tokens[index]
        allowed = sum(share for limit, share in flow.limits if limit > more)
        next_alive = allowed * math.exp(-survival.hazard(more))
        grown = growth[index]
        next_size = next_alive * (flow.mean_blocks + grown)
        next_square = next_alive * (
            flow.mean_square_blocks + 2 * grown * flow.mean_blocks + grown * grown
        )
        lives += step / 2 * (alive + next_alive)
        sizes += step / 2 * (size + next_size)
        squares += step / 2 * (square + next_square)
        next_cube = _cube(next_size, next_square, next_alive)
        cubes += step / 2 * (cube + next_cube)
        kept = math.exp(-step / flow.forget_seconds)
        near_sizes = kept * near_sizes + step / 2 * (kept * size + next_size)
        near_squares = kept * near_squares + step / 2 * (kept * square + next_square)
        means[index] += flow.mean_rate * sizes + excess * near_sizes
        chance = max(0.0, flow.mean_rate * squares + excess * near_squares)
        known = math.exp(-at / flow.forget_seconds)
        unsure = known * flow.error + (1 - known) * flow.variance
        smoothed = flow.forget_seconds / (flow.forget_seconds + min(at, lives))
        wandering = sizes * sizes * (unsure * smoothed + flow.mean_error)
        variances[index] += chance + wandering
        thirds[index] += max(0.0, flow.mean_rate) * cubes
        before.append((step, last_chance, last_wandering, kept))
        alive, size, square, cube = next_alive, next_size, next_square, next_cube
        last, last_chance, last_wandering = at, chance, wandering
    for index, (step, chance, wandering, kept) in enumerate(before):
        stays = max(0.0, 1 - step / max(lives, step))
        covariances[index] += chance * stays + wandering * max(kept, stays)


def _cube(size: float, square: float, alive: float) -> float:
    """Third moment of a lognormal variable, times its share."""
    return (square / size) ** 3 * alive if size > 0 else 0.0


def spans() -> list[float]:
    """Seconds between the points of the grid; the first from now."""
    return [GRID[0], *(later - earlier for earlier, later in pairwise(GRID))]
