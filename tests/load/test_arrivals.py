"""The load's rise and fall."""

import pytest

from kvscope.load import LoadSpec, Scenario
from kvscope.load.arrivals import QUIET_LEVEL, level_of


def levels(scenario: Scenario) -> list[float]:
    """Levels of two periods, ten points each."""
    spec = LoadSpec(url="http://peer", scenario=scenario, period_seconds=10.0)
    level = level_of(spec)
    return [level(second + 0.5) for second in range(20)]


def test_bursts_are_quiet_then_full() -> None:
    assert levels(Scenario.BURSTS) == 2 * (6 * [QUIET_LEVEL] + 4 * [1.0])


def test_mix_rises_and_falls() -> None:
    period = levels(Scenario.MIX)[:10]
    assert period[:5] == sorted(period[:5])
    assert period == pytest.approx(period[::-1])
    assert period[0] == pytest.approx(QUIET_LEVEL, abs=0.05)
    assert period[5] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("scenario", [Scenario.CHAT, Scenario.RAG, Scenario.AGENTS])
def test_others_are_steady(scenario: Scenario) -> None:
    assert set(levels(scenario)) == {1.0}
