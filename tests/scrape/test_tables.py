"""Every row of every table gives the right number from some page, and no page gives more."""

from typing import get_args

import pytest

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import metric
from kvscope_exporter.scrape.labels import gauge, histogram
from kvscope_exporter.scrape.row import Row, Table
from kvscope_exporter.scrape.tables import TABLES
from tests.scrape.cases import others, sglang, vllm
from tests.scrape.cases.case import Case, flat, read

CASES = (*vllm.CASES, *sglang.CASES, *others.CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_a_page_gives_these_numbers_and_no_others(case: Case) -> None:
    readings = read(case)
    found = flat(readings)
    assert found.keys() == case.expected.keys()
    for engine, series in case.expected.items():
        assert found[engine].keys() == series.keys(), engine
        for name, value in series.items():
            assert found[engine][name] == pytest.approx(value, rel=1e-12), name
    assert sum(page.num_contradictory for page in readings) == case.num_contradictory
    assert sum(page.num_malformed for page in readings) == case.num_malformed
    assert readings[0].is_page


@pytest.mark.parametrize(
    "table",
    [table for tables in TABLES.values() for table in tables],
    ids=lambda table: f"{table.server} {len(table.rows)}",
)
def test_every_row_is_reached_by_some_page(table: Table) -> None:
    """Its number is asserted there, since a page's numbers are all asserted."""
    position = TABLES[table.server].index(table)
    reached: set[int] = set()
    for case in CASES:
        if case.kind == table.server:
            for reading in read(case)[position].engines.values():
                reached |= reading.rows
    missing = [table.rows[i] for i in range(len(table.rows)) if i not in reached]
    assert not missing, [(row.family, dict(row.labels), *row.value.names()) for row in missing]


@pytest.mark.parametrize(
    "table",
    [table for tables in TABLES.values() for table in tables],
    ids=lambda table: f"{table.server} {len(table.rows)}",
)
def test_a_table_is_consistent_with_the_catalogue(table: Table) -> None:
    told = {row.family for row in table.rows}
    for family, reason in table.absent.items():
        assert metric(family).name not in told, "it is not absent"
        assert reason


def test_every_kind_of_server_has_a_table_but_our_own() -> None:
    assert set(TABLES) == set(get_args(ServerKind)) - {"kvscope"}


def test_a_row_refuses_nonsense() -> None:
    with pytest.raises(KeyError, match="did you mean"):
        Row(family="kvscope_kv_block", value=gauge("a"))
    with pytest.raises(ValueError, match="passed through"):
        Row(family="kvscope_kv_active_ratio", value=histogram("a"))
    with pytest.raises(ValueError, match="no state='busy'"):
        Row(family="kvscope_requests", value=gauge("a"), labels={"state": "busy"})
    with pytest.raises(ValueError, match="needs a reason"):
        Row(family="kvscope_kv_active_ratio", value=gauge("a"), worth="bound")
