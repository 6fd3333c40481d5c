"""Overview: how far is each engine's start, and what takes so long?"""

from typing import get_args

from dashboards.kit.panels import FULL, RATIO, SECONDS, Panel, Q
from dashboards.kit.queries import BY_ENGINE, series, total, worst
from dashboards.kit.tables import Column, rows
from kvscope_events.vocabulary import StartPhase

_PHASES = get_args(StartPhase)
_STARTS = series("kvscope_start_phase_seconds")


def _start(phase: str) -> str:
    """By engine, of the worker where it takes longest."""
    return worst(series("kvscope_start_phase_seconds", phase=phase), BY_ENGINE)


def _weights_read() -> str:
    """By engine, of the worker that has read least."""
    read, files = (series(f"kvscope_start_weights_{part}_bytes") for part in ("read", "file"))
    return f"min by ({BY_ENGINE}) ({read} / {files})"


def _whole_start() -> str:
    """By engine, of the worker where it takes longest."""
    return worst(total(_STARTS, f"{BY_ENGINE}, worker"), BY_ENGINE)


def _usual_start() -> str:
    """By engine: the median over a week and the replicas of its model. One that has started stays
    at what it took, so a start under way hardly counts."""
    usual = f"quantile by (model_name) (0.5, quantile_over_time(0.5, {_whole_start()}[1w:2h]))"
    return f"0 * {_whole_start()} + on (model_name) group_left () {usual}"


def table() -> Panel:
    return rows(
        405,
        "How far is the start?",
        "Time for each part of the last start, by engine, of its slowest worker; the last "
        "part that is there goes on while the engine loads. One that takes far longer than "
        "in the others hangs there. device: a rank of the group is missing. weights: a "
        "slow disk or network; read: the share of the files. warm_up: compiling, into a "
        "cache that was lost. Usually: the median of the model's starts in a week.",
        *(Q(_start(phase), phase) for phase in _PHASES),
        Q(_whole_start(), "all"),
        Q(_usual_start(), "usual"),
        Q(_weights_read(), "read"),
        columns={
            "model_name": Column("Model"),
            "instance": Column("Instance"),
            "engine": Column("Engine", width=65),
            "all": Column("Whole start", SECONDS, width=110),
            "usual": Column("Usually", SECONDS, width=90),
            **{phase: Column(phase, SECONDS, width=85) for phase in _PHASES},
            "read": Column("read", RATIO, width=70),
        },
        height=6,
        worst_first=("Whole start",),
        when_absent=f"{FULL} It takes a vLLM or SGLang with kvscope's observer.",
    )
