"""A lean page: what of each family is on it, and that rules and boards need no more."""

import json
from itertools import chain

import pytest
from fastapi.testclient import TestClient
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Exemplar, Sample

from dashboards.generate import BOARDS, FOLDER, NEEDS_FULL
from kvscope_alerts.rules import groups
from kvscope_exporter.catalogue import CATALOGUE, metric
from kvscope_exporter.collect.detail import lean
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.metrics import metrics_app
from kvscope_monitoring.names import not_on_a_lean_page
from tests.dashboards.promql import panels_of
from tests.exporter.page import FIXED_CLOCK, hello
from tests.exporter.test_page import targets_of

MOST, MOST_OF_ITS_OWN = 130, 15
MOST_MARKED_SHARE = 0.3
"""Share of the panels that only `--detail full` fills."""
_OWN = {row.family for row in CATALOGUE if row.group == "self"}


def reduced(name: str, *samples: Sample) -> list[Sample]:
    row = metric(name)
    family = Family(row.family, row.help, row.kind)
    family.samples = [*samples]
    (found,) = lean([family])
    assert family.samples == [*samples], "the page that is full may have the same family"
    return found.samples


@pytest.fixture(scope="module")
def exporter() -> Exporter:
    """An engine of which everything is known, its worker and its front end; no GPU is read."""
    parts = hello(), hello(worker="0"), hello(worker="api-0")
    return Exporter(targets_of(*parts), machine=Machine(), clock=FIXED_CLOCK)


def test_a_lean_page_is_a_part_of_the_whole_one_and_short(exporter: Exporter) -> None:
    client = TestClient(metrics_app(exporter))
    sizes = {}
    for query in ("", "?detail=full", "?detail=lean"):
        lines = client.get(f"/metrics{query}").text.splitlines()
        sizes[query] = len([x for x in lines if x[0] != "#" and not x.startswith("vllm:")])
    assert sizes[""] <= sizes["?detail=full"] > 2 * sizes["?detail=lean"]
    assert sizes["?detail=lean"] <= MOST
    own = [f for f in lean(exporter.registry.collect()) if f.name in _OWN or "process_" in f.name]
    assert sum(len(family.samples) for family in own) <= MOST_OF_ITS_OWN
    assert client.get("/metrics?detail=little").status_code == 400


def test_buckets_that_are_left_are_those_up_to_the_wanted_bounds() -> None:
    bounds = ("0.001", "0.25", "0.75", "2.0", "+Inf")  # of a server of its own mind
    name = "kvscope_time_to_first_token_seconds"
    exemplar = Exemplar({"trace_id": "a"}, 0.7, 1.0)
    buckets = [
        Sample(f"{name}_bucket", {"le": le}, count, None, exemplar if le == "0.001" else None)
        for count, le in enumerate(bounds)
    ]
    rest = [Sample(f"{name}_count", {}, 4), Sample(f"{name}_sum", {}, 9.0)]
    found = reduced(name, *buckets, *rest)
    assert [(s.labels.get("le"), s.value) for s in found[:-2]] == [
        *(("0.25", 1), ("0.75", 2), ("2.0", 3), ("+Inf", 4))
    ]
    assert found[0].exemplar == exemplar, "its own bucket is left out"
    assert found[-2:] == rest
    whole = "kvscope_request_duration_seconds"
    plain = [Sample(f"{whole}_bucket", {"le": "+Inf"}, 1), Sample(f"{whole}_count", {}, 1)]
    assert reduced(whole, *plain) == plain[1:]


def test_labels_that_are_left_out_are_summed_and_flags_are_raised_by_one() -> None:
    lost = "kvscope_preemptions_total"
    both = [Sample(lost, {"engine": "0", "mode": m, "cause": "c"}, 2) for m in ("a", "b")]
    assert reduced(lost, *both) == [Sample(lost, {"engine": "0"}, 4)]
    stopped = "kvscope_observer_stopped"
    ends = [Sample(stopped, {"endpoint": e, "source": "wire"}, v) for e, v in (("x", 1), ("y", 0))]
    assert reduced(stopped, *ends) == [Sample(stopped, {"source": "wire"}, 1)]
    waits = "kvscope_queue_wait_seconds_total"
    parts = [Sample(waits, {"part": part}, 1) for part in ("wait_blocks", "wait_unexplained")]
    assert reduced(waits, *parts) == parts[1:]


def test_no_rule_reads_more_than_a_lean_page_has() -> None:
    rules = chain.from_iterable(group.rules for group in groups())
    assert {family for rule in rules for family in not_on_a_lean_page(rule.expr)} == set()


def test_a_panel_that_reads_more_says_so_and_few_do() -> None:
    panels, marked = 0, 0
    for uid in BOARDS:
        for panel in panels_of(json.loads((FOLDER / f"{uid}.json").read_text())):
            queries = [target.get("expr", "") for target in panel.get("targets", ())]
            needs = any(not_on_a_lean_page(query) for query in queries)
            assert needs == (NEEDS_FULL in panel.get("description", "")), panel["title"]
            panels, marked = panels + bool(queries), marked + needs
    assert 0 < marked <= MOST_MARKED_SHARE * panels


@pytest.mark.parametrize(
    ("expression", "families"),
    [
        ("rate(kvscope_step_duration_seconds_sum[5m])", {"kvscope_step_duration_seconds"}),
        ("sum without (mode, cause) (kvscope_preemptions_total)", set()),
        ("sum by (cause) (kvscope_preemptions_total)", {"kvscope_preemptions_total"}),
        ('kvscope_queue_wait_seconds_total{part="wait_unexplained"}', set()),
        ("kvscope_queue_wait_seconds_total", {"kvscope_queue_wait_seconds_total"}),
        ("kvscope_request_duration_seconds_bucket", {"kvscope_request_duration_seconds"}),
    ],
)
def test_an_expression_is_known_to_need_more(expression: str, families: set[str]) -> None:
    assert not_on_a_lean_page(expression) == families
