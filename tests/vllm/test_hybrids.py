"""Models with several kinds of KV cache on a real vLLM under load: every figure of their groups.

Three sources are compared: the page, an oracle of plain loops over the stream of events, and vLLM
itself, by its counters, its log, and a witness that asks its look-up of single groups.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vllm.counters import disagreements
from tests.vllm.group_oracle import Oracle, Row
from tests.vllm.hybrids import HYBRIDS, Hybrid, converse, families, logged_size, witnessed
from tests.vllm.observed import Observed, observed

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module", params=HYBRIDS)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def hybrid(name: str) -> Hybrid:
    return HYBRIDS[name]


@pytest.fixture(scope="module")
def vllm(
    vllm_python: Path,
    hybrid: Hybrid,
    hybrid_models: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Observed]:
    """One server of each model, after its load; the tests only read."""
    model = hybrid_models(hybrid.checkpoint)
    folder = tmp_path_factory.mktemp("hybrid")
    with observed(vllm_python, model, folder, *hybrid.command()) as running:
        converse(running.server)
        running.settle()
        yield running


@pytest.fixture(scope="module")
def oracle(vllm: Observed) -> Oracle:
    return Oracle(vllm.replay.batches)


def test_the_pool_is_vllms_own_at_every_step(vllm: Observed, hybrid: Hybrid) -> None:
    assert vllm.assert_equal() > 300
    assert vllm.value("kvscope_kv_ledger_imbalance_blocks") == 0
    told = sorted(group.kind for group in vllm.replay.ledger.groups)
    assert tuple(told) == hybrid.kinds


def test_every_counter_is_the_one_on_vllms_page(vllm: Observed) -> None:
    assert disagreements(vllm.page(), vllm.server.page()) == []


def test_every_figure_of_the_groups_is_the_one_that_plain_loops_count(
    vllm: Observed, oracle: Oracle
) -> None:
    page, expected = families(vllm.page()), oracle.rows()
    assert {row: page.get(row) for row in expected} == expected
    counted = {family for family, _ in expected}
    rest = {row: v for row, v in page.items() if row[0] in counted and row not in expected and v}
    reserved: Row = ("kvscope_kv_blocks", (("state", "reserved"),))
    assert rest == {reserved: 1}
    if _caches_groups(vllm):
        by_kind = {kind: count for kind, count in _vetoes(expected).items() if count}
        assert by_kind, "no kind refused anything: the load is too small"
        assert sum(v for (family, _), v in expected.items() if "evictions" in family) > 0


def test_hits_and_evictions_of_each_group_are_those_of_vllms_own_lookup(
    vllm: Observed, oracle: Oracle
) -> None:
    told = witnessed(vllm)
    if not _caches_groups(vllm):
        assert told.asked == []
        assert not any(event.group_hit_tokens for event in oracle.lookups)
        return
    name_tokens = vllm.replay.ledger.block_size
    reported = [
        (event.queried_tokens, event.hit_blocks * name_tokens, event.group_hit_tokens)
        for event in oracle.lookups
    ]
    assert reported == told.asked
    assert [not event.resumed for event in oracle.lookups] == told.first
    lost = vllm.value("kvscope_kv_block_evictions_total", cause="capacity")
    assert lost == sum(told.evictions.values()) > 0


def test_sizes_are_those_of_vllms_log_line(vllm: Observed) -> None:
    tokens, sequences = logged_size(vllm.server)
    configurations = []
    for page in map(families, (vllm.page(), vllm.server.page())):
        (labels,) = (dict(labels) for name, labels in page if name == "vllm:cache_config_info")
        configurations.append(labels)
        assert int(labels["kv_cache_size_tokens"]) == tokens
        assert f"{float(labels['kv_cache_max_concurrency']):.2f}" == sequences
    ours, theirs = configurations
    assert (ours.pop("cache_dtype"), theirs["cache_dtype"]) == ("bfloat16", "auto")
    assert {label: theirs[label] for label in ours} == ours
    # vLLM counts its null block in, which holds nothing.
    blocks = int(ours["num_gpu_blocks"])
    fitting = float(ours["kv_cache_max_concurrency"]) * (blocks - 1) / blocks
    assert vllm.value("kvscope_kv_full_length_sequences") == pytest.approx(fitting)
    assert vllm.value("kvscope_kv_usable_tokens") == tokens * (blocks - 1) // blocks


def _caches_groups(vllm: Observed) -> bool:
    """Whether it looks up several groups at an admission."""
    (cached,) = (
        dict(labels)["enable_prefix_caching"]
        for name, labels in families(vllm.server.page())
        if name == "vllm:cache_config_info"
    )
    return cached == "True" and len(vllm.replay.ledger.groups) > 1


def _vetoes(rows: dict[Row, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for (family, labels), tokens in rows.items():
        if family == "kvscope_prefix_cache_vetoed_tokens_total":
            kind = dict(labels)["kind"]
            found[kind] = found.get(kind, 0) + tokens
    return found
