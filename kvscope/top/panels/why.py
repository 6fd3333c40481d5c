"""The verdict of `/api/why`: in one sentence as the first line, and clause by clause."""

from rich.text import Text

from exporter import words
from exporter.answers.why.question import WHY
from kvscope.top.reading import Unknown
from kvscope.top.situation import Panel, Situation, Watched, unknown_lines, wrapped
from kvscope_events.printable import one_line


def verdict(watched: Watched) -> tuple[str, str]:
    """The sentence behind its sign, and the style of the sign."""
    answer = watched.answer(WHY)
    if isinstance(answer, Unknown):
        return f"? No verdict: {one_line(answer.reason)}", "bold"
    if not answer.chain:
        return f"✔ {one_line(answer.sentence)}", "bold green"
    return f"▲ {one_line(answer.sentence)}", "bold red"


def _note(situation: Situation) -> str:
    answer = situation.here.answer(WHY)
    if isinstance(answer, Unknown) or answer.confidence is None:
        return ""
    return f"confidence that the first is the cause: {answer.confidence}"


def _body(situation: Situation, width: int) -> list[Text]:
    answer = situation.here.answer(WHY)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    lines = [] if answer.chain else [Text(one_line(answer.sentence))]
    for clause in answer.chain:
        ended = clause.until_seconds
        until = "" if ended is None else f", until {words.clock(ended)}"
        text = f"{words.clock(clause.at_seconds)}  {one_line(clause.text)}{until}"
        lines += wrapped(text, width, "" if lines else "bold", indent=10)
    if answer.remedy:
        lines += wrapped(f"Do        {one_line(answer.remedy)}", width, "green", indent=10)
    if answer.excluded:
        text = f"Not seen  {one_line(', '.join(answer.excluded))}"
        lines += wrapped(text, width, "dim", indent=10)
    lines.append(Text(f"It looked back {words.seconds(answer.seconds)}.", "dim"))
    return lines


CHAIN = Panel(
    key="why",
    title="Why",
    help="The cause of what is wrong, what followed from it, and what to do.",
    least=8,
    most=20,
    note=_note,
    body=_body,
)
