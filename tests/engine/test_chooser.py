"""The estimates by which `auto` chooses follow what was measured, and what is found again."""

from kvscope_engine.swap.chooser import Chooser, Costs, Rate


def measured() -> Chooser:
    """A block of 16 tokens: 2 µs out, 3 µs in; a token: 1 µs."""
    chooser = Chooser(block_size=16)
    chooser.copied("out", 10, 20_000)
    chooser.copied("in", 10, 30_000)
    chooser.computed(100, 100_000)
    return chooser


def test_nothing_is_estimated_before_all_three_rates_are_measured() -> None:
    chooser = Chooser(block_size=16)
    assert chooser.estimate(32, 0) is None
    chooser.copied("out", 10, 20_000)
    chooser.copied("in", 10, 30_000)
    assert chooser.estimate(32, 0) is None
    chooser.computed(100, 100_000)
    assert chooser.estimate(32, 0) is not None


def test_a_victim_that_finds_nothing_pays_for_every_block_or_every_token() -> None:
    assert measured().estimate(32, 0) == Costs(swap_ns=2 * 5_000, recompute_ns=32_000)
    assert measured().estimate(33, 0) == Costs(swap_ns=3 * 5_000, recompute_ns=33_000)


def test_blocks_of_others_come_back_for_nothing_but_are_copied_out() -> None:
    costs = measured().estimate(64, 3)
    assert costs == Costs(swap_ns=4 * 2_000 + 1 * 3_000, recompute_ns=16_000)


def test_what_earlier_victims_found_is_expected_of_the_next_one() -> None:
    chooser = measured()
    chooser.resumed(found_tokens=48, discarded_tokens=64)
    assert chooser.estimate(64, 0) == chooser.estimate(64, 3)
    for _ in range(100):
        chooser.resumed(found_tokens=64, discarded_tokens=64)
    costs = chooser.estimate(64, 0)
    assert costs is not None
    assert costs.recompute_ns < 100
    assert not costs.prefers_swap, "all of it will be there: a copy is for nothing"


def test_the_estimate_follows_a_link_that_becomes_slow() -> None:
    chooser = measured()
    before = chooser.estimate(160, 0)
    for _ in range(30):
        chooser.copied("out", 10, 2_000_000)
    after = chooser.estimate(160, 0)
    assert before is not None
    assert before.prefers_swap
    assert after is not None
    assert not after.prefers_swap


def test_a_rate_weighs_measurements_by_their_size_and_their_age() -> None:
    rate = Rate()
    assert rate.value is None
    rate.observe(5, 0)
    assert rate.value is None, "what took no time tells nothing"
    rate.observe(10, 1)
    rate.observe(10, 9)
    assert rate.value == (9 + 10) / (0.9 + 9)
