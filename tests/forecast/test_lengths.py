"""Lengths: the hazard against plain sums over a list; those cut off or running; another traffic."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fold.exhaustion.lengths import EDGES, MEMORY, Lengths, bin_of

ENDINGS = st.lists(st.tuples(st.integers(1, 5_000), st.booleans()), min_size=1, max_size=60)


def exposure(tokens: float, index: int) -> float:
    """Tokens that a sequence of this length spent in a bin."""
    return max(0.0, min(tokens, EDGES[index + 1]) - EDGES[index])


@given(endings=ENDINGS, running=st.lists(st.floats(0, 3_000), max_size=10))
def test_hazards_are_stops_over_the_tokens_lived(
    endings: list[tuple[int, bool]], running: list[float]
) -> None:
    lengths = Lengths()
    for tokens, stopped in endings:
        lengths.observe(tokens, stopped=stopped)
    weights = [(1 + 1 / MEMORY) ** (index - len(endings)) for index in range(len(endings))]
    survival = lengths.survival(running)
    total = sum(w for w, (_, stopped) in zip(weights, endings, strict=True) if stopped)
    lived = sum(w * tokens for w, (tokens, _) in zip(weights, endings, strict=True)) + sum(running)
    expected, cumulative = total / lived, 0.0
    for index in range(40):
        if not total:
            break
        stops = sum(
            w
            for w, (tokens, stopped) in zip(weights, endings, strict=True)
            if stopped and bin_of(tokens) == index
        )
        tokens_there = sum(
            w * exposure(tokens, index) for w, (tokens, _) in zip(weights, endings, strict=True)
        ) + sum(exposure(tokens, index) for tokens in running)
        hazard = (stops + 0.5) / (tokens_there + 0.5 / expected)
        cumulative += hazard * (EDGES[index + 1] - EDGES[index])
        expected = hazard * 2**-0.25
        assert survival.hazard(EDGES[index + 1]) == pytest.approx(cumulative, rel=1e-6)


def test_survivors_of_a_long_tail_have_longer_to_go_than_newcomers() -> None:
    random, lengths = Random(1), Lengths()
    for _ in range(3_000):
        lengths.observe(int(50 * random.paretovariate(1.2)), stopped=True)
    survival = lengths.survival([])

    def goes_on(tokens: float) -> float:
        return math.exp(survival.hazard(tokens) - survival.hazard(tokens + 100))

    assert goes_on(1_000) == pytest.approx((1_000 / 1_100) ** 1.2, abs=0.05)
    assert goes_on(1_000) > goes_on(100) > goes_on(50) - 0.05


def test_what_was_cut_off_counts_as_longer_than_that() -> None:
    random, cut = Random(2), Lengths()
    for _ in range(4_000):
        tokens = round(random.expovariate(1 / 300)) + 1
        cut.observe(min(tokens, 200), stopped=tokens <= 200)
    survival = cut.survival([])
    assert math.exp(-survival.hazard(200)) == pytest.approx(math.exp(-200 / 300), abs=0.03)
    assert math.exp(-survival.hazard(900)) > 0.02


def test_lengths_that_never_stop_by_themselves_have_no_hazard() -> None:
    lengths = Lengths()
    for _ in range(30):
        lengths.observe(128, stopped=False)
    survival = lengths.survival([10.0])
    assert survival.hazard(127) == 0
    assert survival.mean([(128, 0.5), (256, 0.5)]) == pytest.approx(192, rel=0.1)


def test_another_traffic_takes_over_soon_and_the_same_never_does() -> None:
    random, lengths = Random(3), Lengths()
    for index in range(3_000):
        lengths.expect([])
        changed = lengths.observe(round(random.expovariate(1 / 200)) + 1, stopped=True)
        assert not changed, index
    for _ in range(300):
        lengths.expect([])
        lengths.observe(round(random.expovariate(1 / 30)) + 1, stopped=True)
    assert lengths.survival([]).mean([(10_000, 1.0)]) < 60
