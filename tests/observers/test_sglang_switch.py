"""The parts of an SGLang observer that goes off and on: methods, events of names, requests."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kvscope_events.observers.sglang import plugin


def test_only_the_tree_of_the_pool_names_pages_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, which sorts waiting requests, kept each event for good; and an SGLang with KV
    events of its own counted as one that names pages for us."""

    @dataclass
    class CacheInitParams:
        req_to_token_pool: object
        page_size: int
        enable_kv_cache_events: bool = False

    module = SimpleNamespace(CacheInitParams=CacheInitParams)
    monkeypatch.setitem(sys.modules, "sglang.srt.mem_cache.cache_init_params", module)
    monkeypatch.setenv(plugin.NAMES_VARIABLE, "on")
    monkeypatch.setattr(plugin, "_switched_on", False)
    plugin._switch_names_on()
    sorts = CacheInitParams(None, 1)
    published = CacheInitParams(object(), 1, enable_kv_cache_events=True)
    assert (sorts.enable_kv_cache_events, published.enable_kv_cache_events) == (False, True)
    assert not plugin._switched_on
    assert CacheInitParams(object(), 1).enable_kv_cache_events
    assert plugin._switched_on
