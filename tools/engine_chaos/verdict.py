"""Whether the calls of a disturbed engine got what an undisturbed one gives."""

from tools.engine_chaos.calls import Call
from tools.engine_chaos.engine import Outcome

_REASONS = {"lives": {"length"}, "raises": {"length", "error"}, "leaves": {"length", "abort"}}


def differences(calls: list[Call], outcomes: list[Outcome], right: list[Outcome]) -> list[str]:
    """One line for each call that is wrong."""
    found = []
    for number, (call, got, wanted) in enumerate(zip(calls, outcomes, right, strict=True)):
        problem = _problem(call, got, wanted)
        if problem:
            found.append(f"call {number} ({call.fate}, n={call.n}): {problem}")
    return found


def _problem(call: Call, got: Outcome, wanted: Outcome) -> str:
    if len(got.reasons) != call.n or not set(got.reasons) <= _REASONS[call.fate]:
        return f"ended with {got.reasons}"
    if call.fate == "raises" and call.at < call.max_tokens and "error" not in got.reasons:
        return "raised, and has no error"
    for choice, (tokens, all_tokens) in enumerate(zip(got.tokens, wanted.tokens, strict=True)):
        if tokens != all_tokens[: len(tokens)]:
            return f"choice {choice} has other tokens"
        if got.reasons[choice] == "length" and tokens != all_tokens:
            return f"choice {choice} is cut short"
    return ""
