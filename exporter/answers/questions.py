"""All questions, by name."""

from exporter.answers.advice import ADVICE
from exporter.answers.preemptions import PREEMPTIONS
from exporter.answers.prefixes import PREFIXES
from exporter.answers.question import Question
from exporter.answers.residency import RESIDENCY

_ALL: tuple[Question, ...] = (ADVICE, PREEMPTIONS, PREFIXES, RESIDENCY)

QUESTIONS = {question.name: question for question in _ALL}
