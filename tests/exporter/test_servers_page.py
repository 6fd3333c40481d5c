"""servers.md says what the page obeys, and the engine says of itself what the page claims."""

import pytest

from kvscope.reference.servers import servers_page
from kvscope_engine.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    PreemptionPolicy,
    SwapConfig,
)
from kvscope_engine.introduction import Introduction
from kvscope_events.bus import NullBus
from kvscope_events.events import EVENT_NAMES
from kvscope_events.producers import ENGINE_EVENTS, LOOKUP_EVENTS, SWAP_EVENTS
from kvscope_exporter.catalogue import metric
from tests.repo.checkout import ROOT


def test_the_page_is_the_committed_one() -> None:
    committed = (ROOT / "docs" / "reference" / "servers.md").read_text()
    assert committed == servers_page(), "run: make docs"


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("mode", ["recompute", "swap", "auto"])
def test_our_engine_tells_the_events_on_the_servers_page(
    caching: bool, mode: PreemptionPolicy
) -> None:
    cache = CacheConfig(enable_prefix_caching=caching)
    config = EngineConfig(model=ModelConfig(), cache=cache, swap=SwapConfig(mode=mode))
    says = Introduction(config, NullBus()).hello.tells
    expected = ENGINE_EVENTS if caching else ENGINE_EVENTS - LOOKUP_EVENTS
    assert set(says) == (expected if mode == "recompute" else expected | SWAP_EVENTS)
    assert set(EVENT_NAMES) > ENGINE_EVENTS


def test_without_prefix_caching_only_its_families_are_absent() -> None:
    for line in servers_page().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) >= 4 and cells[3] == "absent" != cells[1]:
            family = cells[0].strip("`")
            of_caching = "prefix" in family or "cached" in family
            assert of_caching or metric(family).group == "prefix", line
