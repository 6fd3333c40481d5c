"""The page of metrics names every family, label value and bucket, in tables that hold together."""

import re

from kvscope.reference.metrics import metrics_page
from kvscope_exporter.catalogue import CATALOGUE, GROUPS


def test_every_metric_has_one_row_on_the_page() -> None:
    page = metrics_page()
    for row in CATALOGUE:
        (line,) = re.findall(rf"^\| `{re.escape(row.name)}` \| {row.kind}\b.*$", page, re.MULTILINE)
        assert row.help in line
        assert row.notes in line
        for values in row.closed_labels.values():
            assert all(value in line for value in values)
        assert all(f"`{alias}`" in line for alias in row.aliases)
        assert all(event in line for event in row.events)


def test_all_tables_have_as_many_cells_as_their_heads() -> None:
    width = 0
    for line in metrics_page().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if not cells:
            width = 0
            continue
        width = width or cells
        assert cells == width, line


def test_groups_stand_in_order_and_buckets_at_the_end() -> None:
    titles = re.findall(r"^## (.*)$", metrics_page(), re.MULTILINE)
    assert titles == [*GROUPS.values(), "Buckets"]
    assert metrics_page().count("| 0.005 0.01 0.05 ") == 1
