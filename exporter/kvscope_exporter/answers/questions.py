"""All questions, by name."""

from typing import Any

from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.course import COURSE
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from kvscope_exporter.answers.prefixes import PREFIXES
from kvscope_exporter.answers.question import Question
from kvscope_exporter.answers.residency import RESIDENCY
from kvscope_exporter.answers.tenants import TENANTS
from kvscope_exporter.answers.whatif import WHATIF

_ALL: tuple[Question[Any], ...] = (
    *(ADVICE, COURSE, PREEMPTIONS, PREFIXES, RESIDENCY, TENANTS, WHATIF, WHY),
)

QUESTIONS = {question.name: question for question in _ALL}
