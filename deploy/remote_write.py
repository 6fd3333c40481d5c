"""An example of `remote_write` that sends on only the series that our rules and dashboards read."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kvscope_alerts.bare import packs
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Group, Record
from kvscope_alerts.rules import groups
from kvscope_monitoring.names import names_in

FILE = Path(__file__).parent / "prometheus" / "remote-write.yml"
URL = "https://prometheus.example.com/api/v1/write"
_ALWAYS = ("up", "ALERTS")
"""Series about targets, and about alerts where the rules are evaluated."""
_HEAD = """\
# Written by `python -m deploy` from the rules and the dashboards. docs/attach/stack.md explains it.
# Add `remote_write` to your prometheus.yml: of the series it has, these are sent on, and no others.

remote_write:
  - url: {url}
    write_relabel_configs:
      - source_labels: [__name__]
        action: keep
        regex: "\\
"""


def kept(dashboards: Path) -> list[str]:
    """Names of all series that a rule of ours or a panel reads, and of those that rules record.

    dashboards: the folder with their JSON.
    """
    found = {*_ALWAYS}
    for group in (*groups(), *_of_other_servers()):
        for rule in group.rules:
            found |= names_in(rule.expr)
            if isinstance(rule, Record):
                found.add(rule.record)
    for path in dashboards.glob("*.json"):
        for query in _queries(json.loads(path.read_text())):
            found |= names_in(query)
    return sorted(found)


def remote_write(dashboards: Path) -> str:
    """The text of deploy/prometheus/remote-write.yml. A line that ends with a backslash continues
    on the next one: the expression contains no white space."""
    names = "|\\\n".join(f"          {name}" for name in kept(dashboards))
    return f'{_HEAD.format(url=URL)}{names}"\n'


def _of_other_servers() -> Iterable[Group]:
    return [group for server in SERVERS for group in packs.groups(server)]


def _queries(part: Any) -> Iterator[str]:
    """Queries of panels, annotations and variables."""
    if isinstance(part, list):
        for each in part:
            yield from _queries(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            else:
                yield from _queries(value)
