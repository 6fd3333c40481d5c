"""Errors for checkpoints that cannot be served: one line each, with problem, reason and remedy."""

from kvscope_events.printable import one_line

_QUOTED = 300
"""Characters kept of another library's error."""


class CheckpointError(Exception):
    """A checkpoint that cannot be served: the problem and the remedy."""

    def __init__(self, model: str, problem: str, remedy: str) -> None:
        super().__init__(one_line(f"{model}: {problem}; {remedy}"))
        self.model = model
        self.problem = problem
        self.remedy = remedy


class ModelTooLargeError(CheckpointError):
    """The weights do not fit into the memory of their device."""


def unsupported(
    model: str, problem: str, remedy: str = "choose a decoder-only model with attention"
) -> CheckpointError:
    """The model cannot run on paged attention, or would give wrong output on it."""
    return CheckpointError(model, problem, remedy)


def first_line(error: BaseException) -> str:
    """The first meaningful line of another library's error, to be quoted in one of ours.

    For errors whose text is not a sentence, such as a KeyError, the type precedes the text.
    """
    lines = [line.strip() for line in str(error).strip().splitlines()[:2]]
    if not lines:
        return type(error).__name__
    text = " ".join(lines) if lines[0].endswith(":") else lines[0]
    if isinstance(error, ArithmeticError | AssertionError | AttributeError | LookupError):
        text = f"{type(error).__name__}: {text}"
    return one_line(text, _QUOTED)
