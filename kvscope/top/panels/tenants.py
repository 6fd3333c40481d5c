"""Tenants and LoRA adapters by use, and how long each waits."""

from collections.abc import Callable

from rich.text import Text

from exporter import words
from exporter.answers.tenants import TENANTS, OneAdapter, OneDemand, OneTenant
from kvscope.top.reading import Unknown
from kvscope.top.situation import Panel, Situation, unknown_lines
from kvscope.top.table import Column, Table
from kvscope_events.printable import quoted


def _name(one: OneDemand) -> str:
    if isinstance(one, OneAdapter):
        return f"adapter {quoted(one.adapter)}"
    assert isinstance(one, OneTenant)
    return "(no user)" if one.tenant is None else quoted(one.tenant)


def _mean(value: float | None, show: Callable[[float | None], str] = words.seconds) -> str:
    return "none yet" if value is None else show(value)


COLUMNS = (
    Column(title="tenant", cell=_name, right=False),
    Column(
        title="tokens",
        cell=lambda one: words.share(one.token_ratio),
        order=lambda one: one.token_ratio,
    ),
    Column(
        title="running", cell=lambda one: words.count(one.running), order=lambda one: one.running
    ),
    Column(
        title="waiting", cell=lambda one: words.count(one.waiting), order=lambda one: one.waiting
    ),
    Column(
        title="queue",
        cell=lambda one: _mean(one.mean_queue_seconds),
        order=lambda one: one.mean_queue_seconds,
    ),
    Column(
        title="first token",
        cell=lambda one: _mean(one.mean_first_token_seconds),
        order=lambda one: one.mean_first_token_seconds,
        left_out=1,
    ),
    Column(
        title="preempted",
        cell=lambda one: words.count(one.preemptions),
        order=lambda one: one.preemptions,
        left_out=2,
        style=lambda one: "color(208)" if one.preemptions else "",
    ),
    Column(
        title="computed",
        cell=lambda one: _mean(one.computed_ratio, words.share),
        order=lambda one: one.computed_ratio,
        left_out=3,
    ),
    Column(
        title="requests",
        cell=lambda one: words.short(one.requests),
        order=lambda one: one.requests,
        left_out=4,
    ),
    Column(
        title="failed",
        cell=lambda one: words.count(one.failed),
        order=lambda one: one.failed,
        left_out=5,
    ),
)


def _note(situation: Situation) -> str:
    answer = situation.here.answer(TENANTS)
    if isinstance(answer, Unknown):
        return ""
    return f"{words.count(answer.counted_tenants)} counted, {words.short(answer.tokens)} tokens"


def _body(situation: Situation, width: int) -> Table | list[Text]:
    answer = situation.here.answer(TENANTS)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    rows: list[OneDemand] = [*answer.tenants, *answer.adapters]
    return Table(columns=COLUMNS, rows=rows, empty="No request has been seen yet.")


TENANT_TABLE = Panel(
    key="tenants",
    title="Tenants",
    help="Requests by the hash of their `user`: share of the tokens, mean times in the queue and "
    "to the first token, and the share of prompt tokens that the cache did not have.",
    least=3,
    most=51,
    note=_note,
    body=_body,
)
