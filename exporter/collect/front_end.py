"""Families of a server's front end."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold.front_end import FrontEnd
from kvscope_events.events import Hello


def collect_front_end(families: Families, fold: FrontEnd, _process: Hello) -> Iterator[Family]:
    yield families.table("kvscope_front_end_answers_total", fold.answers)
    yield families.histogram("kvscope_front_end_first_part_seconds", fold.first_part)
    yield families.summaries(
        "kvscope_front_end_seconds", {(place,): known for place, known in fold.beside.items()}
    )
