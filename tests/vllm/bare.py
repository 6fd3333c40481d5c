"""Rules and board for a vLLM without our observer, asked of one that runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvscope_alerts.bare.packs import pack_file
from kvscope_alerts.bare.server import VLLM
from kvscope_alerts.timing import Timing
from tests.dashboards.promql import names_in, panels_of
from tests.repo.checkout import ROOT
from tests.support.prometheus import Prometheus, prometheus_with

_PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [vllm.rules.yml]
scrape_configs:
  - job_name: vllm
    static_configs: [{{targets: ["{target}"]}}]
"""


@contextmanager
def scraped_by_prometheus(url: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus with the rules, which scrapes vLLM's own page."""
    (folder / "vllm.rules.yml").write_text(pack_file(VLLM, timing=Timing(divisor=200)))
    target = url.removeprefix("http://")
    with prometheus_with(_PROMETHEUS.format(target=target), folder) as running:
        running.wait_for('up{job="vllm"}')
        yield running


def names_of_the_board() -> set[str]:
    board = json.loads((ROOT / "dashboards" / "kvscope-vllm.json").read_text())
    variables = {variable["name"] for variable in board["templating"]["list"]}
    return {
        name
        for panel in panels_of(board)
        for target in panel.get("targets", [])
        for name in names_in(target["expr"], variables)
    }
