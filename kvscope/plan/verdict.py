"""The answer in one line: how many GPUs hold one sequence, and how many all that are wanted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvscope.plan.parallel import TIMES, Parallelism
from kvscope.plan.plan import Plan
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.units import format_bytes

_TENSOR = (1, 2, 4, 8)
"""Within one machine; beyond it pipeline stages are added."""
_PIPELINE = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    fits: bool
    """One sequence of full length fits as planned."""


def smallest(plan: Plan, sequences: int) -> Plan | None:
    """The plan with the fewest GPUs that hold this many sequences of full length; None: none does.

    The data parallelism is the plan's own.
    """
    for parallel in _candidates(plan.settings.parallel):
        try:
            candidate = plan.divided(parallel)
        except ConfigError:
            continue  # heads or layers that cannot be divided so
        if _holds(candidate, sequences):
            return candidate
    return None


def verdict(plan: Plan, gpu: str) -> Verdict | None:
    """gpu: its name. None: no pool is sized."""
    answer = _verdict(plan, gpu)
    if answer is None or plan.shape.exact:
        return answer
    return Verdict(f"{answer.text} (not exact: fields of the model were not read)", answer.fits)


def _verdict(plan: Plan, gpu: str) -> Verdict | None:
    length, wanted = plan.settings.max_model_len, plan.settings.concurrency
    held = plan.sequences(length)
    if held is None:
        return None
    fits = _holds(plan, 1)
    each = f"sequences of {length:,} tokens"
    if plan.memory.total is None:
        return Verdict(f"The pool holds {_number(plan)} {each}", fits)
    gpus = _gpus(plan, gpu)
    if fits and held >= wanted:
        return Verdict(f"{gpus} for {wanted:,} {each}, up to {_number(plan)}", True)
    larger = smallest(plan, wanted)
    more = f"{_gpus(larger, gpu)} for {wanted:,}" if larger else f"none planned holds {wanted:,}"
    if fits:
        return Verdict(f"{gpus} for {_number(plan)} {each}, {more}", True)
    one = smallest(plan, 1)
    least = f"{_gpus(one, gpu)} for one, {more}" if one else "nor does any number planned"
    return Verdict(f"{gpus} cannot hold one of the {each}{_short(plan)}; {least}", False)


def _candidates(given: Parallelism) -> Iterator[Parallelism]:
    for tensor in _TENSOR:
        if tensor % given.context == 0:
            yield replace(given, tensor=tensor, pipeline=1)
    for pipeline in _PIPELINE:
        yield replace(given, tensor=max(_TENSOR[-1], given.context), pipeline=pipeline)


def _holds(plan: Plan, sequences: int) -> bool:
    """vLLM keeps one block of the pool for itself and starts only where one sequence fits."""
    length = plan.settings.max_model_len
    blocks = plan.num_blocks()
    if blocks is None or blocks - 1 < plan.blocks(length):
        return False
    return (plan.sequences(length) or 0) >= sequences


def _gpus(plan: Plan, gpu: str) -> str:
    parallel = plan.settings.parallel
    how = f" ({parallel.text()})" if parallel.gpus > 1 else ""
    return f"{parallel.gpus} {TIMES} {gpu}{how}"


def _number(plan: Plan) -> str:
    return f"{plan.concurrent(plan.settings.max_model_len) or 0:,.2f}".rstrip("0").rstrip(".")


def _short(plan: Plan) -> str:
    budget = plan.budget("chunked")
    if budget is not None and budget.missing:
        return f", {format_bytes(budget.missing)} short on each"
    return ""
