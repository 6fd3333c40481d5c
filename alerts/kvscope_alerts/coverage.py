"""The kinds of servers for which an alert can fire: its expression compared with their reports.

Whether a series is reported, with the labels and the bounds that a selector asks for, follows from
the declarations that also make servers.md: the events that a source reports, and the tables by
which a server's own page is read.
"""

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kvscope_alerts.objectives import PROMISED
from kvscope_alerts.rule import Group, Record
from kvscope_alerts.rules import groups
from kvscope_events.producers import (
    CONTENT_EVENTS,
    ENGINE_EVENTS,
    KV_STREAM_EVENTS,
    SGLANG_EVENTS,
    VLLM_EVENTS,
)
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import Metric, metric
from kvscope_exporter.scrape.row import Row
from kvscope_exporter.scrape.tables import TABLES
from kvscope_monitoring.bounds import BOUNDS

_HARDWARE = ("kvscope_gpu_memory_headroom_bytes",)
"""Families of torch's figures that need the driver's as well."""
_TEXT = r'"(?:[^"\\]|\\.)*"'
_MATCHERS = rf'\{{(?:[^}}"]|{_TEXT})*\}}'
_SKIPPED = (
    r"\[[^\]]*\]|\boffset\s+\w+"
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
)
_TOKEN = re.compile(
    rf"{_SKIPPED}"
    rf"|([A-Za-z_:][\w:]*(?:{_MATCHERS})?|{_TEXT}|[\d.]+(?:e\d+)?|[<>=!]=|[-+*/<>^%(),])"
)
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_TEXT})")
_OPERATORS = {*"+-*/<>^%", "==", "!=", "<=", ">="}
_ONLY_BY = {
    "kvscope_engine_silence_seconds": {"StepCompleted"},
    "kvscope_observer_stopped": {"ObserverStopped"},
    "kvscope_event_batches_dropped_total": {"Hello", "NamesStored"},
}
"""Families about the stream of events itself, and the events of which a source needs one."""
_OF_PAGES = (
    "kvscope_source_up",
    "kvscope_source_last_message_age_seconds",
    "kvscope_page_errors_total",
)
"""Families about a stream that a server's own page has as well."""
_ALWAYS = ("up", "process_start_time_seconds", "process_cpu_seconds_total", PROMISED)
_DCGM = "DCGM_"
_KUBERNETES = "kube_"
"""Prefixes of families of DCGM's exporter and of kube-state-metrics, which no server reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A column of the table in docs/reference/alerts.md."""

    title: str
    tells: frozenset[str] = frozenset()
    """Names of events."""
    server: ServerKind = "vllm"
    page: bool = False
    """Whether the server's own page is read."""
    nvml: bool = False
    """Whether the exporter reaches the driver."""

    def has(self, selector: str) -> bool:
        """Whether such a series can exist: the family, with labels that match."""
        name = selector.partition("{")[0]
        if name in _ALWAYS:
            return True
        if name.startswith((_DCGM, _KUBERNETES)):
            return self.nvml and name.startswith(_DCGM)
        if not self._has_family(name) or _row(name).detail == "full":
            return False
        wanted = _matchers(selector)
        row = _row(name)
        return any(
            all(_can_match(matcher, row, labels) for matcher in wanted)
            for labels in self._labels(name, row)
        )

    def _labels(self, name: str, row: Metric) -> Iterator[Mapping[str, Collection[str]]]:
        """Values of the labels whose values are known, for each source of the family."""
        if "source" in row.labels:
            inside = self.server == "kvscope"
            if self.tells:
                by_events = "kv_events" if self.tells == KV_STREAM_EVENTS else "wire"
                yield {"source": {"inprocess" if inside else by_events}}
            if self.page and row.name in _OF_PAGES:
                unnamed = {"model_name": {""}, "engine": {""}}
                yield {"source": {"page"}, **unnamed}
            return
        fronted = self.page and any(
            row.name in table.front_end for table in TABLES.get(self.server, ())
        )
        if not fronted and (row.name not in _on_a_page(self.server) or self._tells_of(row)):
            bounds = row.lean_bounds(row.buckets)
            yield {"le": _texts(bounds)} if name.endswith("_bucket") else {}
        if self.page and (fronted or not self._tells_of(row)):
            known = BOUNDS.get(row.name, {}).get(self.server)
            for reported in _rows_on_a_page(self.server, row.name):
                values = {label: {reported.labels.get(label, "")} for label in row.closed_labels}
                yield {**values, **({"le": _texts(known)} if known else {})}

    def _tells_of(self, row: Metric) -> bool:
        """Whether its events give the family."""
        return bool(row.events) and row.is_observable(self.tells, self.server)

    def _has_family(self, name: str) -> bool:
        row = _row(name)
        if row.group == "gpu" or row.name in _HARDWARE:
            return self.nvml and (row.group == "gpu" or row.is_observable(self.tells, self.server))
        if row.group == "host":
            return "StepCompleted" in self.tells  # the engine's process is known
        if row.group == "fleet":
            return "PrefixLookup" in self.tells  # the engines that `kvscope fleet` can follow
        if name.startswith("kvscope_config_"):
            return self.server != "kvscope"  # whose exporter is in its process
        if row.group in ("self", "server"):
            return name not in _ONLY_BY or not self.tells.isdisjoint(_ONLY_BY[name])
        return self._tells_of(row) or (self.page and row.name in _on_a_page(self.server))


@functools.cache  # of two kinds of servers
def _on_a_page(server: ServerKind) -> frozenset[str]:
    return frozenset(row.family for table in TABLES.get(server, ()) for row in table.rows)


def _rows_on_a_page(server: ServerKind, family: str) -> Iterator[Row]:
    return (row for table in TABLES.get(server, ()) for row in table.rows if row.family == family)


def _texts(bounds: Iterable[float]) -> frozenset[str]:
    """The label `le` as the exporter writes it."""
    return frozenset({*(f"{float(bound)}" for bound in bounds), "+Inf"})


def _matchers(selector: str) -> list[tuple[str, str, str]]:
    """Label, operator and text of each."""
    return [
        (label, operator, json.loads(text))
        for label, operator, text in _MATCHER.findall(selector.partition("{")[2])
    ]


def _can_match(
    matcher: tuple[str, str, str], row: Metric, known: Mapping[str, Collection[str]]
) -> bool:
    """Whether a series can have such a label; a label of the target may have any value, as may one
    without a closed set."""
    label, operator, text = matcher
    values = known.get(label, row.lean_values.get(label, row.closed_labels.get(label)))
    if values is None:
        return True
    pattern = text if "~" in operator else re.escape(text)
    return any(bool(re.fullmatch(pattern, value)) != operator.startswith("!") for value in values)


_KINDS = (
    Kind(title="own engine", tells=ENGINE_EVENTS, server="kvscope"),
    Kind(title="observed vLLM", tells=VLLM_EVENTS, page=True),  # `run` and sidecars read it
    Kind(title="vLLM by KV events and page", tells=KV_STREAM_EVENTS, page=True),
    Kind(title="vLLM by page", page=True),
    Kind(
        title="observed SGLang",
        tells=SGLANG_EVENTS | CONTENT_EVENTS,
        server="sglang",
        page=True,  # with --enable-metrics
    ),
    Kind(title="SGLang by page", server="sglang", page=True),
)
KINDS = {kind.title: kind for kind in _KINDS}
YES, WITH_NVML, NO = "yes", "with NVML or DCGM", "-"


def coverage() -> dict[str, dict[str, str]]:
    """For each alert and title of a kind: yes, with NVML or DCGM, or -."""
    all_groups = groups()
    return {
        name: {title: _answer(expressions, kind, all_groups) for title, kind in KINDS.items()}
        for name, expressions in _by_name(all_groups).items()
    }


def table() -> str:
    """The table of docs/reference/alerts.md."""
    head = ("alert", *KINDS)
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, cells in coverage().items():
        lines.append(f"| `{name}` | " + " | ".join(cells[title] for title in KINDS) + " |")
    return "\n".join(lines) + "\n"


def _by_name(all_groups: Iterable[Group]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in all_groups:
        for rule in group.rules:
            if not isinstance(rule, Record):
                found.setdefault(rule.name, []).append(rule.expr)
    return found


def _answer(expressions: list[str], kind: Kind, all_groups: Iterable[Group]) -> str:
    records = records_of(all_groups)
    with_nvml = Kind(
        title=kind.title, tells=kind.tells, server=kind.server, page=kind.page, nvml=True
    )
    for answer, each in ((YES, kind), (WITH_NVML, with_nvml)):
        if any(can_be(expression, each, records) for expression in expressions):
            return answer
    return NO


def records_of(all_groups: Iterable[Group]) -> dict[str, list[str]]:
    """Expressions of the recorded series, by name."""
    records: dict[str, list[str]] = {}
    for group in all_groups:
        for rule in group.rules:
            if isinstance(rule, Record):
                records.setdefault(rule.record, []).append(rule.expr)
    return records


def can_be(expression: str, kind: Kind, records: Mapping[str, list[str]]) -> bool:
    """Whether the expression can have a value: one side of `or` is enough, what follows `unless` is
    not needed, everything else is."""
    tokens = [token for token in _TOKEN.findall(expression) if token]
    return _Parser(iter([*tokens, ""]), kind, records).whole()


class _Parser:
    """Recursive descent; numbers, functions and aggregations need what is in their brackets."""

    def __init__(self, tokens: Iterator[str], kind: Kind, records: Mapping[str, list[str]]) -> None:
        self._tokens, self._kind, self._records = tokens, kind, records
        self._next = next(tokens)

    def whole(self) -> bool:
        found = self._either()
        if self._next:
            raise ValueError(f"cannot read the expression from {self._next!r} on")
        return found

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "")
        return taken

    def _either(self) -> bool:
        found = self._all()
        while self._next == "or":
            self._take()
            found = self._all() or found
        return found

    def _all(self) -> bool:
        found = self._joined()
        while self._next in ("and", "unless"):
            needed = self._take() == "and"
            other = self._joined()
            found = found and (other or not needed)
        return found

    def _joined(self) -> bool:
        found = self._one()
        while self._next in _OPERATORS:
            self._take()
            found = self._one() and found
        return found

    def _one(self) -> bool:
        word = self._take()
        if word == "-":
            return self._one()
        if word == "(":
            return self._bracket()
        if word[0] in '"0123456789':
            return True
        if self._next == "(":
            self._take()
            return self._bracket() or word == "absent"
        recorded = self._records.get(word.partition("{")[0])
        if recorded is not None:
            return any(can_be(each, self._kind, self._records) for each in recorded)
        return self._kind.has(word)

    def _bracket(self) -> bool:
        """Parse up to the closing bracket; all arguments of functions are needed."""
        found = True
        while self._next != ")":
            if self._next == ",":
                self._take()
                continue
            found = self._either() and found
        self._take()
        return found


@functools.cache  # of the names in our rules
def _row(name: str) -> Metric:
    for suffix in ("", "_bucket", "_sum", "_count"):
        if name.endswith(suffix):
            try:
                return metric(name.removesuffix(suffix))
            except KeyError:
                continue
    raise KeyError(f"no family of the catalogue is called {name}")


if __name__ == "__main__":
    print(table(), end="")
