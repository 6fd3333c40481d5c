"""The tape of preemptions: who lost blocks, who took them, and what it cost."""

from rich.text import Text

from exporter import words
from exporter.answers.preemptions import PREEMPTIONS, OnePreemption
from kvscope.top.reading import Unknown
from kvscope.top.situation import Panel, Situation, unknown_lines
from kvscope.top.table import Column, Table


def _takers(one: OnePreemption) -> str:
    """The first taker, and the number of the others."""
    if one.taken_by is None:
        return words.NOT_REPORTED
    if not one.taken_by:
        return _wanted(one)
    first = one.taken_by[0].sequence
    name = words.UNKNOWN if first is None else str(first)
    others = len(one.taken_by) - 1
    more = "+" if one.taken_by_further_blocks else ""
    return f"{name} and {others}{more} more" if others else name


def _wanted(one: OnePreemption) -> str:
    """The sequence for which it was preempted, though it took none of the blocks so far."""
    if one.wanted_by is None:
        return "not taken"
    by = one.wanted_by.sequence
    return "wanted by itself" if by == one.sequence else f"wanted by {by}"


def _blocks(one: OnePreemption) -> str:
    """Blocks given up, and those of them whose content is lost."""
    if one.kept_blocks is None:
        return f"{one.blocks}"
    return f"{one.blocks - one.kept_blocks}/{one.blocks}"


def _or_yet(text: str, value: float | None, one: OnePreemption) -> str:
    return "not yet" if value is None and one.state == "waiting" else text


COLUMNS = (
    Column(
        title="ago",
        cell=lambda one: words.seconds(one.ago_seconds),
        order=lambda one: -one.ago_seconds,
    ),
    Column(title="victim", cell=lambda one: str(one.sequence), style=lambda one: "bold"),
    Column(title="→ taken by", cell=_takers, right=False),
    Column(title="lost blocks", cell=_blocks, left_out=2),
    Column(
        title="recomputed",
        cell=lambda one: _or_yet(words.short(one.recomputed_tokens), one.recomputed_tokens, one),
        order=lambda one: one.recomputed_tokens,
        style=lambda one: "color(208)" if one.recomputed_tokens else "",
    ),
    Column(
        title="stalled",
        cell=lambda one: _or_yet(words.seconds(one.stalled_seconds), one.stalled_seconds, one),
        order=lambda one: one.stalled_seconds,
    ),
    Column(title="fate", cell=lambda one: one.state, right=False, left_out=1),
    Column(title="cause", cell=lambda one: one.cause.replace("_", " "), right=False, left_out=4),
    Column(title="mode", cell=lambda one: one.mode, right=False, left_out=5),
    Column(
        title="had run",
        cell=lambda one: words.seconds(one.age_seconds),
        order=lambda one: one.age_seconds,
        left_out=6,
    ),
    Column(
        title="found again",
        cell=lambda one: _or_yet(words.short(one.found_tokens), one.found_tokens, one),
        left_out=7,
    ),
)


def _note(situation: Situation) -> str:
    answer = situation.here.answer(PREEMPTIONS)
    if isinstance(answer, Unknown):
        return ""
    number = sum(bill.preemptions for bill in answer.bill)
    recomputed = sum(bill.recomputed_tokens for bill in answer.bill)
    stalled = sum(bill.stalled_seconds for bill in answer.bill)
    ratio = "" if answer.recomputed_ratio is None else f" ({words.share(answer.recomputed_ratio)})"
    return (
        f"{words.count(number)} in all: {words.short(recomputed)} tokens recomputed{ratio}, "
        f"{words.seconds(stalled)} stalled"
    )


def _body(situation: Situation, width: int) -> Table | list[Text]:
    answer = situation.here.answer(PREEMPTIONS)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    return Table(columns=COLUMNS, rows=answer.preemptions, empty="No preemption so far.")


PREEMPTION_TAPE = Panel(
    key="preemptions",
    title="Preemptions",
    help="The last 100: the sequence that lost its blocks, those that took them, lost blocks of "
    "its blocks, tokens that it computed again, and its time without a token.",
    least=4,
    most=101,
    note=_note,
    body=_body,
)
