"""Sizes in tokens and sequences: of the blocks, of the server, or absent; never of one group."""

from typing import Any

import pytest

from kvscope_events.events import CacheGroup, PoolCreated, PoolSnapshot
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import families, hello, make_exporter, put, value

GEMMA = [*[CacheGroup("sliding_window", 32, 64)] * 2, CacheGroup("full_attention", 32)]
GRANITE = [CacheGroup("state", 1024), CacheGroup("full_attention", 96)]
LONGEST = 1024


def exporter_of(groups: list[CacheGroup], block_size: int = 32, **told: Any) -> Exporter:
    """A pool of 150 blocks, of which one is reserved."""
    exporter, subscription = make_exporter()
    created = PoolCreated(150, block_size, 0, 1, groups=groups, **told)
    put(subscription, 0, 1, hello(max_model_len=LONGEST), created)
    return exporter


def configuration(exporter: Exporter) -> dict[str, str]:
    (sample,) = families(exporter)["vllm:cache_config_info"].samples
    return sample.labels


@pytest.mark.parametrize("groups", [[], [CacheGroup("full_attention", 32)]])
def test_one_group_of_full_attention_holds_its_blocks_times_their_size(
    groups: list[CacheGroup],
) -> None:
    exporter = exporter_of(groups)
    assert value(exporter, "kvscope_kv_usable_tokens") == 149 * 32
    assert value(exporter, "kvscope_kv_full_length_sequences") == 149 / 32
    assert value(exporter, "kvscope_kv_block_size_tokens") == 32
    assert configuration(exporter)["kv_cache_size_tokens"] == str(150 * 32)


def test_several_groups_hold_what_the_server_reports() -> None:
    """A gemma-3: vLLM logs `GPU KV cache size: 1,567 tokens` and a concurrency of 1.53."""
    concurrency = 150 / 98
    told = {"size_tokens": int(concurrency * LONGEST), "longest_sequences": concurrency}
    exporter = exporter_of(GEMMA, **told)
    shown = configuration(exporter)
    assert shown["kv_cache_size_tokens"] == "1567"
    assert shown["kv_cache_max_concurrency"] == str(concurrency)
    # Its null block is of no use.
    assert value(exporter, "kvscope_kv_full_length_sequences") == pytest.approx(149 / 98)
    assert value(exporter, "kvscope_kv_usable_tokens") == 1567 * 149 // 150
    assert value(exporter, "kvscope_kv_block_size_tokens") == 32, "the same in each group"


def test_sizes_of_several_groups_are_absent_where_the_server_reports_none() -> None:
    exporter = exporter_of(GRANITE, block_size=3072)
    for name in ("usable_tokens", "full_length_sequences", "block_size_tokens"):
        assert value(exporter, f"kvscope_kv_{name}") is None
    absent = {"kv_cache_size_tokens", "kv_cache_max_concurrency", "block_size"}
    assert absent.isdisjoint(label for label, text in configuration(exporter).items() if text)


def test_a_snapshot_tells_the_sizes_anew() -> None:
    exporter, subscription = make_exporter()
    snapshot = PoolSnapshot(
        *(4, 32, 0, 1, [0] * 4, [None] * 4, []),
        groups=GEMMA,
        size_tokens=40,
        longest_sequences=2.0,
    )
    put(subscription, 0, 1, hello(max_model_len=LONGEST), snapshot)
    assert value(exporter, "kvscope_kv_usable_tokens") == 30
    assert value(exporter, "kvscope_kv_full_length_sequences") == 1.5
