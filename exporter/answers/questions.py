"""All questions, by name."""

from exporter.answers.preemptions import QUESTION as PREEMPTIONS
from exporter.answers.question import Question
from exporter.answers.whatif import QUESTION as WHATIF

_ALL: tuple[Question, ...] = (PREEMPTIONS, WHATIF)

QUESTIONS = {question.name: question for question in _ALL}
