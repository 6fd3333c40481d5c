"""All questions, by name."""

from exporter.answers.question import Question

_ALL: tuple[Question, ...] = ()

QUESTIONS = {question.name: question for question in _ALL}
