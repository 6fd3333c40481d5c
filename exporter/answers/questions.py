"""All questions, by name."""

from typing import Any

from exporter.answers.advice import ADVICE
from exporter.answers.course import COURSE
from exporter.answers.preemptions import PREEMPTIONS
from exporter.answers.prefixes import PREFIXES
from exporter.answers.question import Question
from exporter.answers.residency import RESIDENCY
from exporter.answers.tenants import TENANTS
from exporter.answers.whatif import WHATIF
from exporter.answers.why.question import WHY

_ALL: tuple[Question[Any], ...] = (
    *(ADVICE, COURSE, PREEMPTIONS, PREFIXES, RESIDENCY, TENANTS, WHATIF, WHY),
)

QUESTIONS = {question.name: question for question in _ALL}
