"""The example of `remote_write`: current, complete, and what a Prometheus sends on with it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import promql_parser as pp
import pytest
import yaml

from dashboards.generate import FOLDER as DASHBOARDS
from deploy.remote_write import FILE, URL, kept, remote_write
from kvscope_alerts.bare import packs
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Record
from kvscope_alerts.rules import groups
from tests.alerts.tools import promtools, run
from tests.dashboards.promql import names_in, panels_of, selectors
from tests.repo.checkout import ROOT
from tests.support.http_peer import serving, text
from tests.support.prometheus import Prometheus, prometheus_with
from tests.support.waiting import wait_for

PAGE = ROOT / "tests" / "exporter" / "golden" / "openmetrics.txt"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def of_rules() -> Iterator[str]:
    """Names that a parser finds in the rules, and those that they record."""
    everything = (*groups(), *(group for server in SERVERS for group in packs.groups(server)))
    for rule in (rule for group in everything for rule in group.rules):
        yield from (selector.name for selector, _ in selectors(pp.parse(rule.expr)))
        if isinstance(rule, Record):
            yield rule.record


def of_boards() -> Iterator[str]:
    for path in DASHBOARDS.glob("*.json"):
        board = json.loads(path.read_text())
        variables = {variable["name"] for variable in board["templating"]["list"]}
        annotations = [a["expr"] for a in board["annotations"]["list"] if "expr" in a]
        panels = [t["expr"] for panel in panels_of(board) for t in panel.get("targets", ())]
        for expr in (*annotations, *panels):
            yield from names_in(expr, variables)
        for variable in board["templating"]["list"]:
            query = variable.get("query")
            if isinstance(query, str) and query.startswith("label_values("):
                yield query.removeprefix("label_values(").partition("{")[0].partition(",")[0]


def test_the_committed_file_is_what_the_generator_writes() -> None:
    assert remote_write(DASHBOARDS) == FILE.read_text(), "run `python -m deploy`"


def test_the_list_is_what_a_parser_of_promql_finds_and_nothing_else() -> None:
    assert set(kept(DASHBOARDS)) == {"up", "ALERTS", *of_rules(), *of_boards()}


def test_a_name_is_kept_as_a_whole_and_nothing_is_between_two() -> None:
    (target,) = yaml.safe_load(FILE.read_text())["remote_write"]
    (rule,) = target["write_relabel_configs"]
    assert rule["action"] == "keep"
    assert rule["regex"].split("|") == kept(DASHBOARDS)


@pytest.mark.promtool
def test_promtool_accepts_it_as_a_configuration() -> None:
    for tool in promtools():
        run(tool, "check", "config", str(FILE))


def names(server: Prometheus) -> set[str]:
    answer = httpx.get(f"{server.url}/api/v1/label/__name__/values", timeout=10).json()
    return set(answer["data"])


@pytest.mark.prometheus
@pytest.mark.slow
def test_a_prometheus_sends_on_what_is_kept_and_nothing_else(tmp_path: Path) -> None:
    """The sender scrapes our page; the receiver scrapes nothing."""
    folders = [tmp_path / name for name in ("sender", "receiver")]
    for folder in folders:
        folder.mkdir()
    receiving = prometheus_with("global: {}\n", folders[1], "--web.enable-remote-write-receiver")
    with serving({"/metrics": text(PAGE.read_text(), OPENMETRICS)}) as page, receiving as receiver:
        address = page.url.removeprefix("http://")
        scraping = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "kvscope", "static_configs": [{"targets": [address]}]}],
        }
        sending = FILE.read_text().replace(URL, f"{receiver.url}/api/v1/write")
        with prometheus_with(yaml.safe_dump(scraping) + sending, folders[0]) as sender:
            sender.wait_for("up")
            expected = names(sender) & set(kept(DASHBOARDS))
            assert len(expected) > 80
            wait_for(lambda: names(receiver) >= expected, "all have arrived", 60)
            assert names(receiver) == expected
            assert len(names(sender) - expected) > 40
