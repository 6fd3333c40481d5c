"""All questions, by name."""

from exporter.answers.preemptions import QUESTION as PREEMPTIONS
from exporter.answers.question import Question

_ALL: tuple[Question, ...] = (PREEMPTIONS,)

QUESTIONS = {question.name: question for question in _ALL}
