"""The names of counters that `kvscope load` reads are those of the catalogue."""

import pytest

from exporter.catalogue import metric
from kvscope.load import counters

CANDIDATES = [*counters.QUERIED, *counters.HIT, *counters.PREEMPTIONS]


@pytest.mark.parametrize(("name", "labels"), CANDIDATES)
def test_a_renamed_metric_or_label_is_noticed(name: str, labels: dict[str, str]) -> None:
    row = metric(name)
    for label, value in labels.items():
        assert value in (row.labels[label] or ())
