"""Answers that a command prints: the panels show its text."""

from rich.console import Console
from rich.text import Text

from kvscope.answer_text.tenants import tenants_text
from kvscope.answer_text.why import why_text
from kvscope.top.situation import Panel, Situation
from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.question import WHY, WhyAnswer
from kvscope_exporter.answers.tenants import TENANTS, TenantsAnswer


def _why(situation: Situation, answer: WhyAnswer, width: int) -> tuple[str, list[Text]]:
    return f"of the last {words.seconds(answer.seconds)}", why_text(answer, width)


def _tenants(situation: Situation, answer: TenantsAnswer, width: int) -> tuple[str, list[Text]]:
    console = Console(width=width, highlight=False)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for each in tenants_text([answer], len(answer.tenants))
        for line in console.render_lines(each, pad=False)
    ]
    note = f"{words.count(answer.counted_tenants)} counted, {words.short(answer.tokens)} tokens"
    return note, lines


CHAIN = Panel(
    "Why", "The cause of what is wrong, what followed from it, and what to do.", _why, WHY.name
)
TENANT_TABLE = Panel(
    "Tenants",
    "Requests by the hash of their `user`: share of the tokens, mean times in the queue and to the "
    "first token, and the share of prompt tokens that the cache did not have.",
    _tenants,
    TENANTS.name,
)
