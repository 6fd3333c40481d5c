"""The shared prefixes that saved most tokens, and those that lost most."""

from kvscope.top.situation import Panel, Situation
from kvscope.top.table import Column, Table
from kvscope_exporter import words
from kvscope_exporter.answers.prefixes import PREFIXES, PrefixesAnswer

COLUMNS = (
    Column("prefix", lambda one: one.prefix, left=True),
    Column("length", lambda one: one.length_tokens, words.short),
    Column("hits", lambda one: one.hits, words.short),
    Column("saved", lambda one: one.saved_tokens, words.short, style=lambda figure: "color(39)"),
    Column(
        *("lost", lambda one: one.lost_tokens, words.short),
        style=lambda figure: "color(208)" if figure else "",
    ),
    Column("last used", lambda one: one.last_use_seconds_ago, words.seconds, left_out=1),
    Column(
        *("in the pool", lambda one: "yes" if one.resident else "evicted"),
        left=True,
        left_out=2,
    ),
    Column("continues", lambda one: one.continues or "none: it begins", left=True, left_out=3),
)


def _body(situation: Situation, answer: PrefixesAnswer, width: int) -> tuple[str, Table]:
    rows = {one.prefix: one for one in (*answer.most_saved, *answer.most_lost)}
    saved, lost = words.short(answer.saved_tokens), words.short(answer.lost_tokens)
    note = f"tokens in all: {saved} saved, {lost} lost"
    return note, Table(COLUMNS, list(rows.values()), "No prefix was shared so far.")


TOP_PREFIXES = Panel(
    "Prefixes",
    "Shared beginnings of prompts, by the hash of their last block: tokens that the cache saved, "
    "and those computed again because blocks had been evicted.",
    *(_body, PREFIXES.name),
)
