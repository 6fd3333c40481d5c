"""Durations of the shipped rules stay as written; shortened ones stay usable."""

import pytest

from kvscope_alerts.timing import Timing, seconds_of
from kvscope_monitoring.selectors import bucket, series


def test_nothing_is_shortened_unless_asked() -> None:
    shipped = Timing()
    assert (shipped.range("5m"), shipped.wait("2m"), shipped.seconds("10m")) == ("5m", "2m", 600)


def test_shortened_durations_have_a_floor_and_a_ceiling() -> None:
    short = Timing(divisor=60)
    assert short.wait("2m") == "2s"
    assert short.wait("10s") == "1s", "there is still a pending state"
    assert short.range("10m") == "10s"
    assert short.range("1m") == "5s", "two scrapes and more"
    assert short.range("3d") == "20s"


@pytest.mark.parametrize("text", ["", "5", "m", "1.5h", "5m30s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds_of(text)


def test_a_divisor_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="divisor"):
        Timing(divisor=0.5)


def test_selectors_know_the_catalogue() -> None:
    with pytest.raises(KeyError, match="did you mean kvscope_requests"):
        series("kvscope_request")
    with pytest.raises(KeyError, match="has no state='sleeping'"):
        series("kvscope_requests", state="sleeping")
    with pytest.raises(KeyError, match="has no colour"):
        series("kvscope_requests", colour="red")


@pytest.mark.parametrize(("bound", "matcher"), [(2.5, 'le="2.5"'), (5, 'le=~"5([.]0)?"')])
def test_a_bucket_is_found_however_its_bound_is_spelled(bound: float, matcher: str) -> None:
    """Prometheus 2 keeps `5`, Prometheus 3 makes it `5.0`."""
    family = "kvscope_time_to_first_token_seconds"
    assert bucket(family, bound, 'job="x"') == f'{family}_bucket{{{matcher},job="x"}}'


def test_a_bucket_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match=r"no bucket of 2\.4; it has 0\.1, "):
        bucket("kvscope_time_to_first_token_seconds", 2.4)
