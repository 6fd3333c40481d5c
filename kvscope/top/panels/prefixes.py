"""The shared prefixes that saved most tokens, and those that lost most."""

from rich.text import Text

from exporter import words
from exporter.answers.prefixes import PREFIXES, SharedPrefix
from kvscope.top.reading import Unknown
from kvscope.top.situation import Panel, Situation, unknown_lines
from kvscope.top.table import Column, Table
from kvscope_events.printable import quoted

COLUMNS = (
    Column(title="prefix", cell=lambda one: quoted(one.prefix), right=False),
    Column(
        title="length",
        cell=lambda one: words.short(one.length_tokens),
        order=lambda one: one.length_tokens,
    ),
    Column(title="hits", cell=lambda one: words.short(one.hits), order=lambda one: one.hits),
    Column(
        title="saved",
        cell=lambda one: words.short(one.saved_tokens),
        order=lambda one: one.saved_tokens,
        style=lambda one: "color(39)",
    ),
    Column(
        title="lost",
        cell=lambda one: words.short(one.lost_tokens),
        order=lambda one: one.lost_tokens,
        style=lambda one: "color(208)" if one.lost_tokens else "",
    ),
    Column(
        title="last used",
        cell=lambda one: words.seconds(one.last_use_seconds_ago),
        order=lambda one: -one.last_use_seconds_ago,
        left_out=1,
    ),
    Column(
        title="in the pool",
        cell=lambda one: "yes" if one.resident else "evicted",
        right=False,
        left_out=2,
    ),
    Column(
        title="continues",
        cell=lambda one: "none: it begins" if one.continues is None else quoted(one.continues),
        right=False,
        left_out=3,
    ),
)


def _note(situation: Situation) -> str:
    answer = situation.here.answer(PREFIXES)
    if isinstance(answer, Unknown):
        return ""
    return (
        f"tokens in all: {words.short(answer.saved_tokens)} saved, "
        f"{words.short(answer.lost_tokens)} lost"
    )


def _body(situation: Situation, width: int) -> Table | list[Text]:
    answer = situation.here.answer(PREFIXES)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    rows: dict[str, SharedPrefix] = {}
    for one in (*answer.most_saved, *answer.most_lost):
        rows.setdefault(one.prefix, one)
    return Table(columns=COLUMNS, rows=list(rows.values()), empty="No prefix was shared so far.")


TOP_PREFIXES = Panel(
    key="prefixes",
    title="Prefixes",
    help="Shared beginnings of prompts, by the hash of their last block: tokens that the cache "
    "saved, and those computed again because blocks had been evicted.",
    least=4,
    most=41,
    note=_note,
    body=_body,
)
