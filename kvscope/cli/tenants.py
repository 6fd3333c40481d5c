"""`kvscope tenants`: demand on a fleet by tenant and adapter, and how long each waits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from exporter import words
from kvscope.answer_document import Authorities, KeyFile, TargetName
from kvscope.output import USAGE_ERROR, fail
from kvscope.places import SERVER_HELP, server_found, server_named
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from exporter.answers.tenants import OneDemand

_NO_USER = "(no user)"
_LEGEND = (
    "tokens: share of all prompt and output tokens\n"
    "computed: share of the prompt tokens that the cache did not have, ended requests"
)
_REMARKS = {
    frozenset[str](): "No request has been seen yet.\n",
    frozenset({""}): "No request named a tenant: `user`, or of an observed vLLM `cache_salt` or a "
    "session. KVSCOPE_OBSERVER_TENANT=user in its environment has `user` read there as well.\n",
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

    def add(self, one: "OneDemand") -> None:
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


def tenants(
    servers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVER...", help=f"Any number of them. {SERVER_HELP}", show_default=False
        ),
    ] = None,
    target: TargetName = "",
    top: Annotated[int, typer.Option(min=1, help="Tenants to print, the largest ones.")] = 20,
    metrics_key_file: KeyFile = None,
    ca: Authorities = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for each answer.")
    ] = 10.0,
) -> None:
    """List tenants and LoRA adapters of servers by use of the cache.

    Sums over all the servers named, since their exporters started.

    A tenant is what requests name as their `user`, shown as the first eight digits of its SHA-256.
    Servers list their fifty largest ones.

    Exit status: 0; 2 if a server cannot be asked, after the table of the others.

    Example: kvscope tenants http://10.0.0.7:8000 http://10.0.0.8:8000
    """
    from exporter.answers.tenants import TENANTS, TenantsAnswer
    from kvscope.answer_document import AnswerError, decode, fetch

    answers: list[TenantsAnswer] = []
    failed = False
    urls = [server_named(each) for each in servers or ()] or [server_found("tenants")]
    for url in urls:
        try:
            body = fetch(
                url, TENANTS.name, target=target, key_file=metrics_key_file, ca=ca, seconds=timeout
            )
            engines = decode(body, url, TENANTS.name, TenantsAnswer)
        except AnswerError as error:
            fail(error)
            failed = True
            continue
        for engine in engines:
            if engine.answer is None:
                fail(f"{url}: {engine.unknown or 'no reason is given'}")
                failed = True
            else:
                answers.append(engine.answer)
    if answers:
        console = Console(highlight=False)
        names = {one.tenant or "" for answer in answers for one in answer.tenants}
        if names:
            tenants = [
                (one.tenant or _NO_USER, one) for answer in answers for one in answer.tenants
            ]
            console.print(_table("tenant", tenants, sum(answer.tokens for answer in answers), top))
            console.print(_LEGEND)
        adapters = [(one.adapter, one) for answer in answers for one in answer.adapters]
        if adapters:
            tokens = sum(one.prompt_tokens + one.output_tokens for _, one in adapters)
            console.print()
            console.print(_table("adapter", adapters, tokens, top))
        console.print(_REMARKS.get(frozenset(names), ""), end="")
    if failed:
        raise typer.Exit(USAGE_ERROR)


def _table(heading: str, rows: Iterable[tuple[str, "OneDemand"]], tokens: int, top: int) -> Table:
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
            printable(each.name),
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
