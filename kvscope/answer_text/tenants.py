"""The answers of `/api/tenants` as text: demand by tenant and by adapter, over all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kvscope_events.printable import quoted
from kvscope_exporter import words
from kvscope_exporter.answers.tenants import OneDemand, TenantsAnswer

_NO_USER = "(no user)"
_LEGEND = (
    "tokens: share of all prompt and output tokens\n"
    "computed: share of the prompt tokens that the cache did not have, ended requests"
)
_REMARKS = {
    frozenset[str](): "No request has been seen yet.",
    frozenset({""}): "No request named a tenant: `user`, or of an observed vLLM `cache_salt` or a "
    "session. KVSCOPE_OBSERVER_TENANT=user in its environment has `user` read there as well.",
}
"""Sort key: the names of all tenants."""


@dataclass(slots=True)
class _Sum:
    """One tenant or adapter on all servers."""

    name: str
    requests: int = 0
    running: int = 0
    waiting: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    ended_tokens: int = 0
    computed_tokens: float = 0
    output_tokens: int = 0
    preemptions: int = 0
    scheduled: int = 0
    queued_seconds: float = 0
    answered: int = 0
    first_token_seconds: float = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def add(self, one: OneDemand) -> None:
        self.requests += one.requests
        self.running += one.running
        self.waiting += one.waiting
        self.failed += one.failed
        self.prompt_tokens += one.prompt_tokens
        self.ended_tokens += one.ended_prompt_tokens
        self.computed_tokens += (one.computed_ratio or 0) * one.ended_prompt_tokens
        self.output_tokens += one.output_tokens
        self.preemptions += one.preemptions
        self.scheduled += one.scheduled
        self.queued_seconds += (one.mean_queue_seconds or 0) * one.scheduled
        self.answered += one.answered
        self.first_token_seconds += (one.mean_first_token_seconds or 0) * one.answered


def tenants_text(answers: Sequence[TenantsAnswer], top: int) -> list[RenderableType]:
    """Tables and remarks. top: names in each table, the largest ones."""
    found: list[RenderableType] = []
    names = {one.tenant or "" for answer in answers for one in answer.tenants}
    if names:
        tenants = [(one.tenant or _NO_USER, one) for answer in answers for one in answer.tenants]
        found += [_table("tenant", tenants, sum(answer.tokens for answer in answers), top), _LEGEND]
    adapters = [(one.adapter, one) for answer in answers for one in answer.adapters]
    if adapters:
        tokens = sum(one.prompt_tokens + one.output_tokens for _, one in adapters)
        found += ["", _table("adapter", adapters, tokens, top)]
    remark = _REMARKS.get(frozenset(names))
    return found if remark is None else [*found, remark]


def _table(heading: str, rows: Iterable[tuple[str, OneDemand]], tokens: int, top: int) -> Table:
    """The largest of all names, summed over servers. tokens: of them all."""
    sums: dict[str, _Sum] = {}
    for name, one in rows:
        sums.setdefault(name, _Sum(name)).add(one)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # fits into 80 columns
    table.add_column(heading, no_wrap=True)
    for column in ("tokens", "requests", "running", "waiting", "failed", "pre-\nempted"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("computed", "queue", "first\ntoken"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in sorted(sums.values(), key=lambda each: (-each.tokens, each.name))[:top]:
        table.add_row(
            Text(quoted(each.name)),
            _share(each.tokens, tokens),
            *(f"{count:,}" for count in (each.requests, each.running, each.waiting)),
            *(f"{count:,}" for count in (each.failed, each.preemptions)),
            _share(each.computed_tokens, each.ended_tokens),
            _seconds(each.queued_seconds, each.scheduled),
            _seconds(each.first_token_seconds, each.answered),
        )
    return table


def _share(part: float, whole: float) -> str:
    return words.share(part / whole) if whole else "-"


def _seconds(total: float, count: int) -> str:
    return words.seconds(total / count) if count else "-"
