"""Names in a pack's rules that are not on a page of the server."""

import re
from collections.abc import Iterator

import promql_parser as pp
from prometheus_client.parser import text_string_to_metric_families

from kvscope_alerts.bare.packs import groups
from kvscope_alerts.bare.server import Server
from kvscope_alerts.objectives import PROMISED
from kvscope_alerts.rule import Record
from tests.dashboards.promql import selectors

OF_PROMETHEUS = {"job", "instance"}
ONLY_AFTER_A_FAULT = {"status", "status_code"}
"""Labels with values that a page has only once there was such an answer."""


def expressions(server: Server) -> list[str]:
    return [rule.expr for group in groups(server) for rule in group.rules]


def missing(server: Server, page: str) -> list[str]:
    """Names, labels and values that the rules ask for and that the page lacks."""
    samples: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample.labels)
    recorded = {
        rule.record for group in groups(server) for rule in group.rules if isinstance(rule, Record)
    }
    found: set[str] = set()
    for expr in expressions(server):
        for selector, _ in selectors(pp.parse(expr)):
            if selector.name not in recorded | {"up", PROMISED}:
                found.update(_missing(selector, samples))
    return sorted(found)


def _missing(
    selector: pp.VectorSelector, samples: dict[str, list[dict[str, str]]]
) -> Iterator[str]:
    name = selector.name
    if name not in samples:
        yield str(name)
        return
    for matcher in selector.matchers.matchers:
        if matcher.name in OF_PROMETHEUS:
            continue
        values = [labels[matcher.name] for labels in samples[name] if matcher.name in labels]
        if not values:
            yield f"{name}: no label {matcher.name}"
        elif matcher.name not in ONLY_AFTER_A_FAULT and not any(
            re.fullmatch(matcher.value, value) for value in values
        ):
            yield f"{name}: no {matcher.name} like {matcher.value}"
