"""The tape of preemptions: who lost blocks, who took them, and what it cost."""

from kvscope.top.situation import Panel, Situation
from kvscope.top.table import Column, Table
from kvscope_exporter import words
from kvscope_exporter.answers.preemptions import PREEMPTIONS, OnePreemption, Preemptions


def _takers(one: OnePreemption) -> str:
    """The first taker, and the number of the others; or the one for which it was preempted."""
    if one.taken_by is None:
        return words.NOT_REPORTED
    if one.taken_by:
        first, others = one.taken_by[0].sequence, len(one.taken_by) - 1
        name = words.UNKNOWN if first is None else str(first)
        more = "+" if one.taken_by_further_blocks else ""
        return f"{name} and {others}{more} more" if others else name
    if one.wanted_by is None:
        return "not taken"
    by = one.wanted_by.sequence
    return "wanted by itself" if by == one.sequence else f"wanted by {by}"


def _blocks(one: OnePreemption) -> str:
    """Blocks given up, and those of them whose content is lost."""
    if one.kept_blocks is None:
        return f"{one.blocks}"
    return f"{one.blocks - one.kept_blocks}/{one.blocks}"


def _or_yet(value: float | None, one: OnePreemption) -> float | str | None:
    return "not yet" if value is None and one.state == "waiting" else value


COLUMNS = (
    Column("ago", lambda one: one.ago_seconds, words.seconds),
    Column("victim", lambda one: one.sequence, style=lambda figure: "bold"),
    Column("→ taken by", _takers, left=True),
    Column("lost blocks", _blocks, left_out=2),
    Column(
        *("recomputed", lambda one: _or_yet(one.recomputed_tokens, one), words.short),
        style=lambda figure: "color(208)" if figure else "",
    ),
    Column("stalled", lambda one: _or_yet(one.stalled_seconds, one), words.seconds),
    Column("fate", lambda one: one.state, left=True, left_out=1),
    Column("cause", lambda one: one.cause.replace("_", " "), left=True, left_out=4),
    Column("mode", lambda one: one.mode, left=True, left_out=5),
    Column("had run", lambda one: one.age_seconds, words.seconds, left_out=6),
    Column("found again", lambda one: _or_yet(one.found_tokens, one), words.short, left_out=7),
)


def _body(situation: Situation, answer: Preemptions, width: int) -> tuple[str, Table]:
    number = sum(bill.preemptions for bill in answer.bill)
    recomputed = sum(bill.recomputed_tokens for bill in answer.bill)
    stalled = sum(bill.stalled_seconds for bill in answer.bill)
    ratio = "" if answer.recomputed_ratio is None else f" ({words.share(answer.recomputed_ratio)})"
    note = (
        f"{words.count(number)} in all: {words.short(recomputed)} tokens recomputed{ratio}, "
        f"{words.seconds(stalled)} stalled"
    )
    return note, Table(COLUMNS, answer.preemptions, "No preemption so far.")


PREEMPTION_TAPE = Panel(
    "Preemptions",
    "The last 100: the sequence that lost its blocks, those that took them, lost blocks of its "
    "blocks, tokens that it computed again, and its time without a token.",
    *(_body, PREEMPTIONS.name),
)
