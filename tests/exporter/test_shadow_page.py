"""Simulated pools on the page, in `/api/whatif` and in advice: there while they agree, else not."""

import pytest

from kvscope_events.events import PoolCreated
from kvscope_exporter.state.simulation import Shadows
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.machine import NOW_NS
from tests.exporter.page import make_exporter, value
from tests.exporter.shadow_stream import FULL, SIZE, WINDOW, alternating
from tests.exporter.stream import put
from tests.exporter.test_whatif_answer import asked

HITS = "kvscope_prefix_cache_whatif_hit_blocks_total"
QUERIED = "kvscope_prefix_cache_whatif_queried_blocks_total"
ERROR = "kvscope_prefix_cache_whatif_error_blocks_total"


def served(hit_blocks: int) -> Exporter:
    """A page of a pool that holds one of two prompts; the engine found this much of each."""
    exporter, subscription = make_exporter()
    begin_ns = NOW_NS - 60 * 10**9
    pool = PoolCreated(15, SIZE, 64, 1, groups=[WINDOW, FULL], retention=0)
    put(subscription, 0, begin_ns, pool)
    for number, events in enumerate(alternating(hit_blocks), start=1):
        put(subscription, number, begin_ns + number * 10**9, *events)
    exporter.render()
    (target,) = exporter.targets
    for fold in target.folds:
        if isinstance(fold, Shadows):
            fold.settle()
    return exporter


def test_the_page_has_the_sizes_that_are_known_while_the_present_one_agrees() -> None:
    exporter = served(0)
    assert value(exporter, QUERIED) == 200
    assert value(exporter, ERROR) == 0
    assert value(exporter, HITS, scale="1") == 0
    assert value(exporter, HITS, scale="2") == 190
    assert value(exporter, HITS, scale="0.25") is None


def test_the_page_has_only_the_error_while_it_does_not() -> None:
    exporter = served(5)
    assert value(exporter, HITS) is None
    assert value(exporter, ERROR) == 190
    assert "did not find what the engine found" in asked(exporter)["unknown"]


def test_the_answer_has_every_size_and_its_limits() -> None:
    answer = asked(served(0))["answer"]
    sizes = {point["scale"]: point for point in answer["curves"][-1]["points"]}
    assert sizes[2.0]["hit_ratio"] == pytest.approx(190 / 200)
    assert sizes[2.0]["capacity_blocks"] == 28
    assert sizes[0.25]["is_lower_bound"]
    assert any("every size admits them" in sentence for sentence in answer["not_modelled"])
    assert not any("conversations is simulated" in sentence for sentence in answer["not_modelled"])
