"""Demand and its crossing of the pool's end, against a simulation that draws every sequence."""

import math
from random import Random

import pytest

from exporter.fold.exhaustion.crossing import crossings
from exporter.fold.exhaustion.demand import Demand, Flow, Stock, demand
from exporter.fold.exhaustion.horizons import GRID
from exporter.fold.exhaustion.lengths import Lengths

SPEED, PER_TOKEN = 10.0, 1 / 16
AT = GRID.index(30.0)


def flow(rate: float) -> Flow:
    return Flow(rate, rate, 600.0, 0.0, 0.0, 0.0, 20.0, 500.0, ((2_000.0, 1.0),))


def exponential(mean: float) -> Lengths:
    random, lengths = Random(6), Lengths()
    for _ in range(20_000):
        lengths.observe(round(random.expovariate(1 / mean)) + 1, stopped=True)
    return lengths


def test_sequences_that_run_end_or_grow() -> None:
    stock = [Stock(tokens=50.0 + n % 7, left=1_000.0, blocks=30.0 + n % 5) for n in range(40)]
    stock += [Stock(tokens=20.0, left=100.0, blocks=25.0)] * 10  # cut off after ten seconds
    wanted = demand(stock, flow(0.0), exponential(200).survival([]), SPEED, PER_TOKEN)
    share = math.exp(-300 / 200)
    held = [s.blocks + 300 * PER_TOKEN for s in stock[:40]]
    assert wanted.means[AT] == pytest.approx(share * sum(held), rel=0.05)
    variance = share * (1 - share) * sum(blocks * blocks for blocks in held)
    assert wanted.deviations[AT] == pytest.approx(math.sqrt(variance), rel=0.05)


def test_sequences_that_come_vary_in_number_and_size() -> None:
    wanted = demand([], flow(2.0), exponential(200).survival([]), SPEED, PER_TOKEN)
    random, totals = Random(7), []
    for _ in range(2_000):
        total, at = 0.0, 0.0
        while (at := at + random.expovariate(2.0)) < 30.0:
            age = 30.0 - at
            if random.random() < math.exp(-age * SPEED / 200):
                total += random.choice((10, 30)) + age * SPEED * PER_TOKEN
        totals.append(total)
    mean = sum(totals) / len(totals)
    deviation = math.sqrt(sum((t - mean) ** 2 for t in totals) / len(totals))
    assert wanted.means[AT] == pytest.approx(mean, rel=0.05)
    assert wanted.deviations[AT] == pytest.approx(deviation, rel=0.07)


def walk(drift: float, correlation: float) -> Demand:
    size = len(GRID)
    means = [100.0 + drift * seconds for seconds in GRID]
    return Demand(means, [10.0] * size, [0.0] * size, [0.0] + [correlation] * (size - 1))


@pytest.mark.parametrize(("drift", "correlation"), [(0.0, 0.5), (0.2, 0.9), (-0.2, 0.8)])
def test_the_first_crossing_is_that_of_simulated_paths(drift: float, correlation: float) -> None:
    computed = crossings(walk(drift, correlation), 115.0, math.inf)
    random, crossed = Random(8), 0
    for _ in range(4_000):
        z = random.gauss(0, 1)
        for index in range(AT + 1):
            if index:
                noise = random.gauss(0, math.sqrt(1 - correlation**2))
                z = correlation * z + noise
            if 100.0 + drift * GRID[index] + 10.0 * z > 115.0:
                crossed += 1
                break
    assert computed[AT] == pytest.approx(crossed / 4_000, abs=0.04)


def test_probabilities_rise_with_the_horizon_and_with_demand() -> None:
    survival = exponential(200).survival([])
    ends = []
    for rate in (0.5, 1.0, 2.0, 4.0):
        stock = [Stock(100.0, 900.0, 30.0)] * round(20 * rate)
        found = crossings(demand(stock, flow(rate), survival, SPEED, PER_TOKEN), 1_500, 5.0)
        assert found == sorted(found)
        ends.append(found[-1])
    assert ends == sorted(ends)
    assert ends[0] < 0.01
    assert ends[-1] > 0.99
