"""The answer of `/api/why` as text: the cause, the harm, and what to do."""

import textwrap

from rich.text import Text

from kvscope_events.printable import printable
from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.question import WhyAnswer


def why_text(answer: WhyAnswer, width: int) -> list[Text]:
    """Lines of at most `width` cells, but for the sentence that nothing is wrong."""
    if not answer.chain:
        return [Text(printable(answer.sentence))]
    lines: list[Text] = []
    for number, clause in enumerate(answer.chain):
        ended = clause.until_seconds
        until = "" if ended is None else f", until {words.clock(ended)}"
        role = f"  [cause, confidence {answer.confidence}]" if not number else ""
        text = f"{clause.text}{until}{role}"
        label = f"{words.clock(clause.at_seconds)}  "
        lines += _wrapped(label, text, width, "" if number else "bold")
    if answer.remedy:
        lines += _wrapped("Do:       ", answer.remedy, width, "green")
    if answer.excluded:
        lines += _wrapped("Ruled out: ", f"{', '.join(answer.excluded)}.", width, "dim")
    for sentence in answer.unseen:
        lines += _wrapped("Unseen:   ", sentence, width, "dim")
    return lines


def _wrapped(label: str, text: str, width: int, style: str) -> list[Text]:
    indent = " " * len(label)
    found = textwrap.wrap(printable(text), width, initial_indent=label, subsequent_indent=indent)
    return [Text(line, style) for line in found]
